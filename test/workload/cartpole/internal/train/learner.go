// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package train runs synchronous rounds of training: collectors play work
// units, learners turn them into one step of the policy, and the new policy is
// evaluated. The curve is a function of the seed alone: units are seeded by
// round and index, and their gradients are summed in the order of their indexes
// no matter who played or computed them. The package knows nothing of networks; the
// collectors and learners that it drives may be anywhere.
package train

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
)

// Errors by which a learner explains why it makes no step.
var (
	// ErrNotReady means that the learner has not found all its parts yet.
	ErrNotReady = errors.New("learner is not ready yet")
	// ErrDiverged means that learners that made the same step differ. Training
	// cannot continue.
	ErrDiverged = errors.New("learners diverged")
)

// StepRequest asks for one step. It carries the state, so that a learner that was
// restarted or has missed steps makes the same one as the others.
type StepRequest struct {
	State    policy.State       `json:"state"`
	Baseline policy.Baseline    `json:"baseline"`
	Units    [][]policy.Episode `json:"units"`
}

// Learner improves a policy, and keeps the state after its last step for a driver
// that takes over.
type Learner interface {
	// State returns the state after the last step; the zero value before the first.
	State(ctx context.Context) (policy.State, error)
	// Step makes one step and returns the state after it.
	Step(ctx context.Context, request StepRequest) (policy.State, error)
}

// Local is a learner in this process.
type Local struct {
	mu    sync.Mutex // protects state
	state policy.State
}

// State implements Learner.
func (l *Local) State(context.Context) (policy.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, nil
}

// Step implements Learner.
func (l *Local) Step(ctx context.Context, request StepRequest) (policy.State, error) {
	if err := request.State.Check(); err != nil {
		return policy.State{}, fmt.Errorf("step: %w", err)
	}
	gradients := make([]policy.Gradient, 0, len(request.Units))
	steps := 0
	for _, episodes := range request.Units {
		if err := ctx.Err(); err != nil {
			return policy.State{}, fmt.Errorf("step: %w", err)
		}
		gradient := policy.NewGradient(request.State.Weights, request.Baseline, episodes)
		gradients, steps = append(gradients, gradient), steps+gradient.Steps
	}
	next := request.State.Apply(policy.Average(gradients))
	next.Steps += steps
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = next
	return next, nil
}
