// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// checkpointFile is the file of a checkpoint in its folder.
const checkpointFile = "cartpole.json"

// checkpoint is where a training that is asked to stop leaves its state for the
// next one.
type checkpoint struct {
	// dir is empty where nothing is kept.
	dir string
}

func newCheckpoint(flags *flag.FlagSet) *checkpoint {
	c := &checkpoint{}
	flags.StringVar(&c.dir, "checkpoint", "",
		"folder in which the state is saved when training is asked to stop, and from which it continues")
	return c
}

func (c *checkpoint) file() string { return filepath.Join(c.dir, checkpointFile) }

// load returns the state that was left; the zero value is none.
func (c *checkpoint) load() (policy.State, error) {
	if c.dir == "" {
		return policy.State{}, nil
	}
	content, err := os.ReadFile(c.file())
	if errors.Is(err, fs.ErrNotExist) {
		return policy.State{}, nil
	}
	if err != nil {
		return policy.State{}, fmt.Errorf("read checkpoint: %w", err)
	}
	var state policy.State
	if err := json.Unmarshal(content, &state); err != nil {
		return policy.State{}, fmt.Errorf("read checkpoint %s: %w", c.file(), err)
	}
	if err := state.Check(); err != nil {
		return policy.State{}, fmt.Errorf("read checkpoint %s: %w", c.file(), err)
	}
	return state, nil
}

// conclude saves what the learner holds of a training that ended before its time,
// and removes what was saved of one that came to its end. It changes nothing of
// how that training ended, so its failures are only logged.
func (c *checkpoint) conclude(ctx context.Context, system System, learner *train.Local, ended error) {
	if c.dir == "" {
		return
	}
	if ended == nil || errors.Is(ended, ErrMissed) {
		if err := os.Remove(c.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			system.Log.Error("the checkpoint was not removed", "error", err)
		}
		return
	}
	state, err := learner.State(context.WithoutCancel(ctx))
	if err == nil && state.Round == 0 {
		return // Nothing was learnt; what an earlier training left is still there.
	}
	if err == nil {
		err = c.save(state)
	}
	if err != nil {
		system.Log.Error("no checkpoint was saved", "error", err)
		return
	}
	system.Log.Info("saved a checkpoint", "round", state.Round, "steps", state.Steps, "file", c.file())
}

// save replaces the file as a whole: a process that is killed meanwhile leaves
// the old one.
func (c *checkpoint) save(state policy.State) error {
	content, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode checkpoint: %w", err)
	}
	partial, err := os.CreateTemp(c.dir, checkpointFile+".*")
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	_, err = partial.Write(content)
	err = errors.Join(err, partial.Sync(), partial.Close())
	if err == nil {
		err = os.Rename(partial.Name(), c.file())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("save checkpoint: %w", err), os.Remove(partial.Name()))
	}
	return nil
}
