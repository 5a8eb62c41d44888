// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
)

// Member is a learner with a name.
type Member struct {
	Name    string
	Learner Learner
}

// MemberError names the member of an ensemble that failed.
type MemberError struct {
	Name string
	Err  error
}

// Error implements error.
func (e *MemberError) Error() string {
	return fmt.Sprintf("learner %s: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *MemberError) Unwrap() error {
	return e.Err
}

// Ensemble is a fixed set of learners that make the same steps. Each of them is
// needed.
type Ensemble []Member

// State implements Learner: the latest that any member holds, for one that was
// restarted holds none.
func (e Ensemble) State(ctx context.Context) (policy.State, error) {
	states := make([]policy.State, len(e))
	err := e.each(func(i int, l Learner) error {
		state, err := l.State(ctx)
		states[i] = state
		return err
	})
	if err != nil {
		return policy.State{}, err
	}
	return slices.MaxFunc(states, func(a, b policy.State) int { return a.Round - b.Round }), nil
}

// Step implements Learner: every member makes the step, and all must end in the
// same state, bit by bit.
func (e Ensemble) Step(ctx context.Context, request StepRequest) (policy.State, error) {
	states := make([]policy.State, len(e))
	err := e.each(func(i int, l Learner) error {
		state, err := l.Step(ctx, request)
		states[i] = state
		return err
	})
	if err != nil {
		return policy.State{}, err
	}
	for i, state := range states {
		if got, want := state.Hash(), states[0].Hash(); got != want {
			return policy.State{}, fmt.Errorf("%w: after round %d %s has hash %s and %s has hash %s",
				ErrDiverged, state.Round, e[i].Name, got, e[0].Name, want)
		}
	}
	return states[0], nil
}

// each calls all members at once and joins their errors.
func (e Ensemble) each(call func(i int, l Learner) error) error {
	if len(e) == 0 {
		return ErrNotReady
	}
	failures := make([]error, len(e))
	var wait sync.WaitGroup
	for i, member := range e {
		wait.Go(func() {
			if err := call(i, member.Learner); err != nil {
				failures[i] = &MemberError{Name: member.Name, Err: err}
			}
		})
	}
	wait.Wait()
	return errors.Join(failures...)
}
