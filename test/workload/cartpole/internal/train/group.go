// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
)

// Patience says how failing members are dealt with.
type Patience struct {
	// Retry is the time before a failing member is tried again. It grows with
	// the number of failures in a row.
	Retry time.Duration
	// Attempts is the number of failures in a row after which a member counts
	// as lost.
	Attempts int
	// Lost is told, once per loss, of a member that counts as lost. It may
	// remove the member; one that is left is retried without end. May be nil.
	Lost func(name string, err error)
}

// maxBackoff bounds the growth of the pauses.
const maxBackoff = 30

func (p Patience) backoff(failures int) time.Duration {
	return p.Retry * time.Duration(min(max(failures, 1), maxBackoff))
}

func (p Patience) lose(name string, err error) {
	if p.Lost != nil {
		p.Lost(name, err)
	}
}

// Group is a changing set of learners. Any one of them suffices. A member that
// fails is left out for a while.
type Group struct {
	patience Patience
	now      func() time.Time

	mu      sync.Mutex // protects members and changed
	members map[string]*groupMember
	changed chan struct{}
}

type groupMember struct {
	Member
	failures int
	retryAt  time.Time
}

// NewGroup returns a group without members.
func NewGroup(patience Patience, now func() time.Time) *Group {
	return &Group{patience: patience, now: now, members: map[string]*groupMember{}, changed: make(chan struct{})}
}

// Add makes a learner a member, in place of one of the same name.
func (g *Group) Add(name string, learner Learner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[name] = &groupMember{Member: Member{Name: name, Learner: learner}}
	close(g.changed)
	g.changed = make(chan struct{})
}

// Remove ends the membership of a learner.
func (g *Group) Remove(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.members, name)
}

// Size is the number of members.
func (g *Group) Size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// Held returns a state that a member holds, so that a new driver of the training
// can continue where another one stopped. It waits until a member holds a state or
// so many members as are enough hold none, and no longer than ctx lasts; the zero
// value is none. Which member's state it is does not matter, for the steps of a
// round are the same whenever they are made.
func (g *Group) Held(ctx context.Context, enough int) policy.State {
	empty := map[string]bool{}
	for {
		members, changed := g.willing()
		for _, member := range members {
			state, err := member.Learner.State(ctx)
			if err == nil && state.Round > 0 {
				return state
			}
			if err == nil {
				empty[member.Name] = true
			}
		}
		if len(empty) >= enough || ctx.Err() != nil {
			return policy.State{}
		}
		wait(ctx, g.patience.Retry, changed)
	}
}

// Step makes one step with whichever members answer. It returns when the step is
// made, when learners diverge or when ctx ends.
func (g *Group) Step(ctx context.Context, request StepRequest) (policy.State, error) {
	for {
		ensemble, changed := g.willing()
		next, err := ensemble.Step(ctx, request)
		if err == nil {
			g.forgive(ensemble)
			return next, nil
		}
		if errors.Is(err, ErrDiverged) {
			return policy.State{}, err
		}
		if ctx.Err() != nil {
			return policy.State{}, fmt.Errorf("learner step of round %d: %w", request.State.Round+1, context.Cause(ctx))
		}
		g.blame(err)
		if rest, _ := g.willing(); len(rest) == 0 {
			wait(ctx, g.patience.Retry, changed)
		}
	}
}

// willing returns the members that have not just failed, by name, and a channel
// that is closed when one is added.
func (g *Group) willing() (Ensemble, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ensemble Ensemble
	for _, name := range slices.Sorted(maps.Keys(g.members)) {
		if m := g.members[name]; !g.now().Before(m.retryAt) {
			ensemble = append(ensemble, m.Member)
		}
	}
	return ensemble, g.changed
}

func (g *Group) forgive(ensemble Ensemble) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, member := range ensemble {
		if m, ok := g.members[member.Name]; ok {
			m.failures = 0
		}
	}
}

// blame counts a failure of each member that err names. A member that is not
// ready is left out for a while but never lost.
func (g *Group) blame(err error) {
	for _, failure := range memberErrors(err) {
		if g.countFailure(failure) {
			g.patience.lose(failure.Name, failure.Err)
		}
	}
}

func (g *Group) countFailure(failure *MemberError) (lost bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, ok := g.members[failure.Name]
	if !ok {
		return false
	}
	if errors.Is(failure.Err, ErrNotReady) {
		m.retryAt = g.now().Add(g.patience.Retry)
		return false
	}
	m.failures++
	m.retryAt = g.now().Add(g.patience.backoff(m.failures))
	return m.failures == g.patience.Attempts
}

// memberErrors takes the parts of an ensemble's joined error apart.
func memberErrors(err error) []*MemberError {
	if member, ok := errors.AsType[*MemberError](err); ok {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			return []*MemberError{member}
		}
		var all []*MemberError
		for _, part := range joined.Unwrap() {
			all = append(all, memberErrors(part)...)
		}
		return all
	}
	return nil
}

// wait returns after d, or earlier when ctx ends or wake is closed.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}
