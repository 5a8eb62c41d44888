// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// training is what all roles that drive training have in common.
type training struct {
	config train.Config
	system System

	mu         sync.Mutex // protects all below
	last       train.Progress
	pauseAfter int           // the round after which training waits; 0 is never
	released   chan struct{} // closed when pauseAfter changes
}

func newTraining(system System, flags *flag.FlagSet) *training {
	t := &training{system: system, released: make(chan struct{})}
	flags.Uint64Var(&t.config.Seed, "seed", 1, "seed of all randomness; equal seeds give equal curves")
	flags.Float64Var(&t.config.Target, "target", 195, "mean return over 20 evaluation episodes to be reached")
	flags.IntVar(&t.config.MaxRounds, "max-rounds", 200, "rounds after which training has failed")
	flags.DurationVar(&t.config.MinRound, "min-round", 0, "least time that a round takes")
	flags.IntVar(&t.pauseAfter, "pause-after", 0, "round after which training waits until PUT /pause tells otherwise; 0 is never")
	return t
}

// resume lets training continue from the checkpoint of an earlier one.
func (t *training) resume(c *checkpoint) error {
	state, err := c.load()
	if err != nil {
		return err
	}
	if state.Round > 0 {
		t.system.Log.Info("going on from a checkpoint", "round", state.Round, "steps", state.Steps)
		t.config.From = state
	}
	return nil
}

// run trains, prints the curve and ends with ErrMissed when the target was not
// reached. Each round is also handed to the given functions.
func (t *training) run(ctx context.Context, pool *train.Pool, group *train.Group, tell ...func(train.Progress)) error {
	t.config.Now, t.config.Gate = t.system.Now, t.gate
	t.config.Report = func(p train.Progress) {
		t.print("", p)
		t.mu.Lock()
		t.last = p
		t.mu.Unlock()
		for _, f := range tell {
			f(p)
		}
	}
	last, err := train.Run(ctx, t.config, pool, group)
	if err != nil {
		t.print("result=stopped ", last)
		return err
	}
	if !last.Reached() {
		t.print("result=missed ", last)
		return fmt.Errorf("%w: %.1f after %d rounds, want %g", ErrMissed, last.Eval, last.Round, last.Target)
	}
	t.print("result=reached ", last)
	return nil
}

func (t *training) print(prefix string, p train.Progress) {
	_, err := fmt.Fprintf(t.system.Stdout,
		"%sround=%d steps=%d return=%.1f eval=%.1f target=%g elapsed=%.1fs collectors=%d learners=%d hash=%s\n",
		prefix, p.Round, p.Steps, p.Return, p.Eval, t.config.Target, p.Elapsed.Seconds(), p.Collectors, p.Learners, p.Hash)
	if err != nil {
		t.system.Log.Warn("progress was not printed", "error", err)
	}
}

// gate waits while training is paused before a round.
func (t *training) gate(ctx context.Context, round int) error {
	for {
		t.mu.Lock()
		paused, released := t.pauseAfter > 0 && round > t.pauseAfter, t.released
		t.mu.Unlock()
		if !paused {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-released:
		}
	}
}

// pause lets training run up to a round.
func (t *training) pause(_ context.Context, p peer.Pause) (peer.Empty, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pauseAfter = p.After
	close(t.released)
	t.released = make(chan struct{})
	return peer.Empty{}, nil
}

// serve adds the routes that report the last round and hold up the next.
func (t *training) serve(m *peer.Mux) {
	peer.Handle(m, "GET /progress", func(context.Context, peer.Empty) (train.Progress, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.last, nil
	})
	peer.Handle(m, "PUT /pause", t.pause)
}

// patience is how failing peers are dealt with.
type patience struct {
	retry    time.Duration
	attempts int
}

func newPatience(flags *flag.FlagSet) *patience {
	p := &patience{}
	flags.DurationVar(&p.retry, "retry", time.Second, "pause before a process that failed is called again")
	flags.IntVar(&p.attempts, "attempts", 5, "failed calls in a row after which a process counts as lost")
	return p
}

// of makes the patience of a pool or group.
func (p patience) of(lost func(name string, err error)) train.Patience {
	return train.Patience{Retry: p.retry, Attempts: p.attempts, Lost: lost}
}
