// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkpoint is the content of the file.
type checkpoint struct {
	state
	Profile profile `json:"profile"`
}

func (t *training) checkpointFile() string {
	return filepath.Join(t.checkpoint, "cartpole.json")
}

// resume continues from the checkpoint, if there is one.
func (t *training) resume() error {
	if t.checkpoint == "" {
		return nil
	}
	content, err := os.ReadFile(t.checkpointFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read checkpoint: %w", err)
	}
	var saved checkpoint
	if err := json.Unmarshal(content, &saved); err != nil {
		return fmt.Errorf("read checkpoint %s: %w", t.checkpointFile(), err)
	}
	if saved.Round < 1 {
		return fmt.Errorf("read checkpoint %s: round: got %d, want 1 or more", t.checkpointFile(), saved.Round)
	}
	t.process.log.Info("continuing from a checkpoint", "round", saved.Round, "steps", saved.Steps)
	t.state, t.profile = saved.state, saved.Profile
	return nil
}

// saveCheckpoint saves the state of a stopped training. A failure does not change how the process
// ends, so it is only logged.
func (t *training) saveCheckpoint() {
	if t.checkpoint == "" || t.state.Round == 0 {
		return
	}
	if err := t.replaceCheckpoint(); err != nil {
		t.process.log.Error("no checkpoint was saved", "error", err)
		return
	}
	t.process.log.Info("saved a checkpoint", "round", t.state.Round, "steps", t.state.Steps, "file", t.checkpointFile())
}

// replaceCheckpoint replaces the file atomically: if the process is killed meanwhile, the old file
// remains.
func (t *training) replaceCheckpoint() error {
	content, err := json.Marshal(checkpoint{t.state, t.profile})
	if err != nil {
		return err
	}
	partial := t.checkpointFile() + ".partial"
	if err := os.WriteFile(partial, content, 0o600); err != nil {
		return err
	}
	return os.Rename(partial, t.checkpointFile())
}

// removeCheckpoint removes the state of a training that has finished.
func (t *training) removeCheckpoint() {
	if t.checkpoint == "" {
		return
	}
	if err := os.Remove(t.checkpointFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.process.log.Error("the checkpoint was not removed", "error", err)
	}
}
