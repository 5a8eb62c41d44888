// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/rollout"
)

// How the work of a round is cut. The numbers are part of what a seed means.
const (
	collectUnits    = 8
	collectEpisodes = 2
	evaluateUnits   = 4
	// evaluateEpisodes makes 20 evaluation episodes in all.
	evaluateEpisodes = 5
)

// Config says what to train and when to stop.
type Config struct {
	Seed uint64
	// Target is the mean return over the evaluation episodes at which training
	// has succeeded.
	Target float64
	// MaxRounds is the round after which training has failed.
	MaxRounds int
	// MinRound is the least time that a round takes; a quick round waits.
	MinRound time.Duration
	// From is a state to continue from; the zero value starts again.
	From policy.State
	// Gate is waited for before each round, with the round's number. May be nil.
	Gate func(ctx context.Context, round int) error
	Now  func() time.Time
	// Report is called with every round.
	Report func(Progress)
}

// Progress is where training stands after a round.
type Progress struct {
	Round int `json:"round"`
	// Steps counts the environment steps that were learnt from so far.
	Steps int `json:"steps"`
	// Return is the mean return of the round's training episodes; 0 for the round
	// that training went on from.
	Return float64 `json:"return"`
	// Eval is the mean return of the evaluation episodes.
	Eval    float64       `json:"eval"`
	Target  float64       `json:"target"`
	Elapsed time.Duration `json:"-"`
	// Collectors and Learners count those that were connected.
	Collectors int `json:"collectors"`
	Learners   int `json:"learners"`
	// Hash is the digest of the learners' state.
	Hash string `json:"hash"`
}

// Reached reports whether the evaluation reached the target.
func (p Progress) Reached() bool {
	return p.Eval >= p.Target
}

// Run trains until the target is reached, MaxRounds have passed or ctx ends, and
// returns the last round's progress.
func Run(ctx context.Context, c Config, pool *Pool, group *Group) (Progress, error) {
	started := c.Now()
	state, progress, err := c.begin(ctx, pool, group)
	if err != nil {
		return progress, err
	}
	for progress.Round < c.MaxRounds && (progress.Round == 0 || !progress.Reached()) {
		begun := c.Now()
		if err := c.gate(ctx, state.Round+1); err != nil {
			return progress, err
		}
		next, after, err := c.round(ctx, pool, group, state, progress)
		if err != nil {
			return progress, fmt.Errorf("round %d: %w", state.Round+1, err)
		}
		state, progress = next, after
		progress.Elapsed = c.Now().Sub(started)
		c.Report(progress)
		if !progress.Reached() {
			wait(ctx, c.MinRound-c.Now().Sub(begun), nil)
		}
	}
	return progress, nil
}

// begin returns what the first round starts from. A state to continue from is
// evaluated first: it may be the one that reaches the target.
func (c Config) begin(ctx context.Context, pool *Pool, group *Group) (policy.State, Progress, error) {
	if c.From.Round == 0 {
		return policy.NewState(c.Seed), Progress{}, nil
	}
	progress, err := c.evaluate(ctx, pool, group, c.From)
	if err != nil {
		return c.From, progress, fmt.Errorf("round %d: %w", c.From.Round, err)
	}
	c.Report(progress)
	return c.From, progress, nil
}

func (c Config) gate(ctx context.Context, round int) error {
	if c.Gate == nil {
		return nil
	}
	return c.Gate(ctx, round)
}

func (c Config) round(
	ctx context.Context, pool *Pool, group *Group, state policy.State, last Progress,
) (policy.State, Progress, error) {
	number := state.Round + 1
	played, err := pool.Run(ctx, c.units(rollout.Collect, number, collectUnits, collectEpisodes), state.Weights)
	if err != nil {
		return state, last, err
	}
	lengths := returns(played)
	request := StepRequest{State: state, Baseline: policy.NewBaseline(lengths)}
	for _, result := range played {
		request.Units = append(request.Units, result.Episodes)
	}
	next, err := group.Step(ctx, request)
	if err != nil {
		return state, last, err
	}
	progress, err := c.evaluate(ctx, pool, group, next)
	if err != nil {
		return state, last, err
	}
	progress.Return = mean(lengths)
	return next, progress, nil
}

// evaluate tells where training stands with a state.
func (c Config) evaluate(ctx context.Context, pool *Pool, group *Group, state policy.State) (Progress, error) {
	units := c.units(rollout.Evaluate, state.Round, evaluateUnits, evaluateEpisodes)
	evaluated, err := pool.Run(ctx, units, state.Weights)
	if err != nil {
		return Progress{}, err
	}
	return Progress{
		Round:      state.Round,
		Steps:      state.Steps,
		Eval:       mean(returns(evaluated)),
		Target:     c.Target,
		Collectors: pool.Count(Collecting),
		Learners:   group.Size(),
		Hash:       state.Hash(),
	}, nil
}

func (c Config) units(kind rollout.Kind, round, count, episodes int) []rollout.Unit {
	units := make([]rollout.Unit, count)
	for i := range units {
		units[i] = rollout.Unit{Seed: c.Seed, Round: round, Index: i, Kind: kind, Episodes: episodes}
	}
	return units
}

func returns(results []rollout.Result) []int {
	var all []int
	for _, r := range results {
		all = append(all, r.Returns...)
	}
	return all
}

func sum(values []int) int {
	total := 0
	for _, v := range values {
		total += v
	}
	return total
}

func mean(values []int) float64 {
	return float64(sum(values)) / float64(max(len(values), 1))
}
