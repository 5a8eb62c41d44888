// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout plays episodes. Work comes in units; the outcome of a unit
// depends on the unit and the weights alone, not on who plays it or when.
package rollout

import (
	"context"
	"fmt"
	"math/rand/v2"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/cartpole"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
)

// MaxEpisodes bounds the episodes of one unit.
const MaxEpisodes = 100

// Kind says what a unit is played for.
type Kind string

// The kinds of units.
const (
	// Collect plays to learn from: the episodes are kept.
	Collect Kind = "collect"
	// Evaluate plays to measure the policy: only the returns are kept.
	Evaluate Kind = "evaluate"
)

// Unit is a piece of work that one collector does at a time.
type Unit struct {
	Seed     uint64 `json:"seed"`
	Round    int    `json:"round"`
	Index    int    `json:"index"`
	Kind     Kind   `json:"kind"`
	Episodes int    `json:"episodes"`
}

// Result is the outcome of a unit.
type Result struct {
	Returns  []int            `json:"returns"`
	Episodes []policy.Episode `json:"episodes,omitempty"`
}

// Check tells why u cannot be played.
func (u Unit) Check() error {
	if u.Kind != Collect && u.Kind != Evaluate {
		return fmt.Errorf("unit kind: got %q, want %q or %q", u.Kind, Collect, Evaluate)
	}
	if u.Episodes < 1 || u.Episodes > MaxEpisodes {
		return fmt.Errorf("unit episodes: got %d, want 1 to %d", u.Episodes, MaxEpisodes)
	}
	return nil
}

// Check tells why r cannot be the outcome of u.
func (r Result) Check(u Unit) error {
	if len(r.Returns) != u.Episodes {
		return fmt.Errorf("result: got %d returns, want %d", len(r.Returns), u.Episodes)
	}
	if u.Kind != Collect {
		return nil
	}
	if len(r.Episodes) != u.Episodes {
		return fmt.Errorf("result: got %d episodes, want %d", len(r.Episodes), u.Episodes)
	}
	for _, e := range r.Episodes {
		if err := e.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Play plays all episodes of a unit.
func Play(ctx context.Context, u Unit, w policy.Weights) (Result, error) {
	if err := u.Check(); err != nil {
		return Result{}, err
	}
	if err := w.Check(); err != nil {
		return Result{}, err
	}
	random := u.random()
	var result Result
	for range u.Episodes {
		if err := ctx.Err(); err != nil {
			return Result{}, fmt.Errorf("play unit %d of round %d: %w", u.Index, u.Round, err)
		}
		episode := play(w, random)
		result.Returns = append(result.Returns, episode.Steps())
		if u.Kind == Collect {
			result.Episodes = append(result.Episodes, episode)
		}
	}
	return result, nil
}

func play(w policy.Weights, random *rand.Rand) policy.Episode {
	var start cartpole.Observation
	for i := range start {
		start[i] = (2*random.Float64() - 1) * cartpole.StartRange
	}
	env := cartpole.Start(start)
	var episode policy.Episode
	for done := false; !done; {
		o := env.Observation()
		action := sample(w.PushRight(o), random)
		episode.Observations = append(episode.Observations, o)
		episode.Actions = append(episode.Actions, action)
		done = env.Step(action)
	}
	return episode
}

func sample(pushRight float64, random *rand.Rand) cartpole.Action {
	if random.Float64() < pushRight {
		return cartpole.PushRight
	}
	return cartpole.PushLeft
}

// random gives every unit a stream of its own.
func (u Unit) random() *rand.Rand {
	stream := uint64(u.Round)<<20 | uint64(u.Index)<<1
	if u.Kind == Evaluate {
		stream |= 1
	}
	return rand.New(rand.NewPCG(u.Seed, stream))
}
