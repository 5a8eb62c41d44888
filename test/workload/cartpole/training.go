// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// maxRounds is the number of rounds after which training has failed.
const maxRounds = 200

// training is the common part of all roles that drive training. The curve depends on the seed
// alone, not on the processes that play and learn.
type training struct {
	process  *process
	seed     uint64
	target   float64
	minRound time.Duration
	// checkpoint is the folder in which a stopped training saves its state.
	checkpoint string
	// report is called after every round. It may be nil.
	report func(context.Context, progress)
	// nodes counts the nodes that collectors are on. It may be nil.
	nodes func() int

	players  team[player]
	learners team[learner]
	state    state
	profile  profile
	last     progress

	mu         sync.Mutex // protects all below
	published  progress
	pauseAfter int           // the round after which training waits; 0 is never
	released   chan struct{} // closed when pauseAfter changes
}

// progress is the progress of training after a round.
type progress struct {
	Round int `json:"round"`
	// Steps counts the environment steps so far.
	Steps int `json:"steps"`
	// Return is the mean return of the round's training episodes; 0 for a round that
	// an earlier process trained.
	Return float64 `json:"return"`
	// Eval is the mean return of the evaluation episodes.
	Eval    float64       `json:"eval"`
	Target  float64       `json:"target"`
	Elapsed time.Duration `json:"-"`
	// Collectors and Learners count the connected processes.
	Collectors int    `json:"collectors"`
	Learners   int    `json:"learners"`
	Hash       string `json:"hash"`
}

func newTraining(p *process, flags *flag.FlagSet) *training {
	t := &training{process: p, released: make(chan struct{})}
	flags.Uint64Var(&t.seed, "seed", 1, "seed of all randomness; equal seeds give equal curves")
	flags.Float64Var(&t.target, "target", 195, "mean return over 20 evaluation episodes at which training has succeeded")
	flags.DurationVar(&t.minRound, "min-round", 0, "least time that a round takes")
	flags.IntVar(&t.pauseAfter, "pause-after", 0, "round after which training waits for PUT /pause; 0 is never")
	flags.StringVar(&t.checkpoint, "checkpoint", "", "folder in which a training that is stopped leaves its state for the next one")
	return t
}

// run continues from the checkpoint of an earlier process, if any, and prints the curve.
func (t *training) run(ctx context.Context) error {
	if err := t.resume(); err != nil {
		return err
	}
	started := time.Now()
	err := t.train(ctx, started)
	t.last.Elapsed = time.Since(started)
	switch {
	case err != nil:
		t.print("result=stopped ", t.last)
	case t.last.Eval < t.target:
		t.print("result=missed ", t.last)
		err = fmt.Errorf("target not reached: %.1f after %d rounds, want %g", t.last.Eval, t.last.Round, t.target)
		t.removeCheckpoint()
	default:
		t.print("result=reached ", t.last)
		t.removeCheckpoint()
		return nil
	}
	if ctx.Err() != nil {
		t.saveCheckpoint()
	}
	return err
}

// train trains rounds until the target is reached. It first evaluates a resumed state because that
// may already reach the target.
func (t *training) train(ctx context.Context, started time.Time) error {
	var trained [][]int
	for begun := started; ; begun = time.Now() {
		if t.state.Round > 0 {
			evaluated, err := playAll(ctx, &t.players, units(t.seed, t.state, true))
			if err != nil {
				return err
			}
			t.publish(ctx, mean(trained), mean(evaluated), time.Since(started))
			if t.last.Eval >= t.target || t.last.Round >= maxRounds {
				return nil
			}
			if err := pause(ctx, t.minRound-time.Since(begun)); err != nil {
				return err
			}
		}
		if err := t.awaitRelease(ctx); err != nil {
			return err
		}
		var err error
		if trained, err = t.round(ctx); err != nil {
			return err
		}
	}
}

// round trains a round and returns its returns. It measures rounds in which the collectors do not
// change.
func (t *training) round(ctx context.Context) ([][]int, error) {
	begun, collectors, nodes := time.Now(), t.players.count(taskCollector), t.countNodes()
	all := units(t.seed, t.state, false)
	trained, err := playAll(ctx, &t.players, all)
	if err != nil {
		return nil, err
	}
	if t.state, err = t.step(ctx, trained); err != nil {
		return nil, err
	}
	t.profile.observe(all, trained)
	if t.players.count(taskCollector) == collectors && t.countNodes() == nodes {
		t.profile.record(nodes, collectors, time.Since(begun))
	}
	return trained, nil
}

func (t *training) countNodes() int {
	if t.nodes == nil {
		return 1
	}
	return t.nodes()
}

// step returns the next state, or the same one with an error.
func (t *training) step(ctx context.Context, trained [][]int) (state, error) {
	next, err := stepAll(ctx, &t.learners, stepRequest{Seed: t.seed, State: t.state, Returns: trained})
	if err != nil {
		return t.state, err
	}
	return next, nil
}

func (t *training) publish(ctx context.Context, trained, evaluated float64, elapsed time.Duration) {
	t.last = progress{
		Round: t.state.Round, Steps: t.state.Steps, Return: trained, Eval: evaluated, Target: t.target, Elapsed: elapsed,
		Collectors: t.players.count(taskCollector), Learners: t.learners.count(taskLearner), Hash: t.state.hash(),
	}
	t.print("", t.last)
	t.mu.Lock()
	t.published = t.last
	t.mu.Unlock()
	if t.report != nil {
		t.report(ctx, t.last)
	}
}

func (t *training) print(prefix string, p progress) {
	_, err := fmt.Fprintf(t.process.stdout,
		"%sround=%d steps=%d return=%.1f eval=%.1f target=%g elapsed=%.1fs collectors=%d learners=%d hash=%s\n",
		prefix, p.Round, p.Steps, p.Return, p.Eval, t.target, p.Elapsed.Seconds(), p.Collectors, p.Learners, p.Hash)
	if err != nil {
		t.process.log.Warn("progress was not printed", "error", err)
	}
}

// awaitRelease waits while training is paused before its next round.
func (t *training) awaitRelease(ctx context.Context) error {
	for {
		t.mu.Lock()
		paused, released := t.pauseAfter > 0 && t.state.Round >= t.pauseAfter, t.released
		t.mu.Unlock()
		if !paused {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-released:
		}
	}
}

// pauseRequest is the round after which training waits; 0 is never.
type pauseRequest struct {
	After int `json:"after"`
}

// serve adds the routes that report the last round and pause training.
func (t *training) serve(mux *http.ServeMux) {
	handle(mux, "GET /progress", func(context.Context, empty) (progress, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.published, nil
	})
	handle(mux, "PUT /pause", func(_ context.Context, r pauseRequest) (empty, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pauseAfter = r.After
		close(t.released)
		t.released = make(chan struct{})
		return empty{}, nil
	})
}

// runSerial trains in a single process.
func runSerial(ctx context.Context, p *process, args []string) error {
	flags := flag.NewFlagSet("serial", flag.ContinueOnError)
	t := newTraining(p, flags)
	if err := p.parse(flags, args); err != nil {
		return err
	}
	port, err := p.number("COORDINATOR_PORT", coordinatorPort)
	if err != nil {
		return err
	}
	here := &local{}
	t.players.add("local", taskCollector, here)
	t.learners.add("local", taskLearner, here)
	mux := newMux(identity{Name: p.hostname})
	t.serve(mux)
	return p.run(ctx, map[int]http.Handler{port: mux}, t.run)
}
