// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package train runs synchronous rounds of training: collectors play work
// units, learners turn them into one step of the policy, and the new policy is
// evaluated. The curve is a function of the seed alone: units are seeded by
// round and index, and their gradients are summed in the order of their indexes
// whoever played or computed them. The package knows nothing of networks; the
// collectors and learners that it drives may be anywhere.
package train

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
)

// Errors by which a learner tells what is wrong with a call.
var (
	// ErrStale means that the learner does not hold the state that the call is
	// based on and must be given it first.
	ErrStale = errors.New("learner holds another state")
	// ErrNotReady means that the learner has not found all its parts yet.
	ErrNotReady = errors.New("learner is not ready yet")
	// ErrDiverged means that learners that made the same steps differ. Training
	// cannot go on.
	ErrDiverged = errors.New("learners diverged")
)

// GradientRequest asks for the gradients of some work units.
type GradientRequest struct {
	// Base is the hash of the state that the gradients are taken at.
	Base     string             `json:"base"`
	Baseline policy.Baseline    `json:"baseline"`
	Units    [][]policy.Episode `json:"units"`
}

// steps is the number of steps of all units.
func (r GradientRequest) steps() int {
	total := 0
	for _, episodes := range r.Units {
		for _, episode := range episodes {
			total += episode.Steps()
		}
	}
	return total
}

// ApplyRequest asks for a step along an average gradient.
type ApplyRequest struct {
	// Base is the hash of the state that the step starts from.
	Base     string    `json:"base"`
	Gradient []float64 `json:"gradient"`
	// Steps is the number of environment steps that the gradient was learnt from.
	Steps int `json:"steps"`
}

// Learner holds a policy and improves it.
type Learner interface {
	// State returns the state that the learner holds; the zero value is none.
	State(ctx context.Context) (policy.State, error)
	// Load replaces the state that the learner holds.
	Load(ctx context.Context, state policy.State) error
	// Gradients returns one gradient for each unit, in their order.
	Gradients(ctx context.Context, request GradientRequest) ([]policy.Gradient, error)
	// Apply makes one step and returns the state after it.
	Apply(ctx context.Context, request ApplyRequest) (policy.State, error)
}

// Local is a learner in this process.
type Local struct {
	mu    sync.Mutex // protects state
	state policy.State
	hash  string
}

// State implements Learner.
func (l *Local) State(context.Context) (policy.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, nil
}

// Load implements Learner.
func (l *Local) Load(_ context.Context, state policy.State) error {
	if err := state.Check(); err != nil {
		return fmt.Errorf("load state: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.hash = state, state.Hash()
	return nil
}

// Gradients implements Learner.
func (l *Local) Gradients(ctx context.Context, request GradientRequest) ([]policy.Gradient, error) {
	state, err := l.at(request.Base)
	if err != nil {
		return nil, err
	}
	gradients := make([]policy.Gradient, 0, len(request.Units))
	for _, episodes := range request.Units {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("compute gradients: %w", err)
		}
		gradients = append(gradients, policy.NewGradient(state.Weights, request.Baseline, episodes))
	}
	return gradients, nil
}

// Apply implements Learner.
func (l *Local) Apply(_ context.Context, request ApplyRequest) (policy.State, error) {
	if len(request.Gradient) != policy.WeightCount {
		return policy.State{}, fmt.Errorf("gradient: got %d numbers, want %d", len(request.Gradient), policy.WeightCount)
	}
	state, err := l.at(request.Base)
	if err != nil {
		return policy.State{}, err
	}
	next := state.Apply(request.Gradient)
	next.Steps += request.Steps
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.hash = next, next.Hash()
	return next, nil
}

func (l *Local) at(base string) (policy.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hash != base {
		return policy.State{}, fmt.Errorf("%w: has %q, the call is based on %q", ErrStale, l.hash, base)
	}
	return l.state, nil
}
