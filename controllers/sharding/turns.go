// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// patience is how long a process that holds a shard leaves a free one to others. It is longer than the
// interval at which another process tries.
const patience = 2 * time.Second

var (
	errNotDeclared = errors.New("the leader does not declare this number of shards")
	errLeft        = errors.New("left to operators that hold no shard")
)

// turns decide when this process takes a free Lease: one at a time.
type turns struct {
	identity string
	clock    clock.PassiveClock

	mutex sync.Mutex
	// mayTake is set while the leader declares this number of shards.
	mayTake bool
	// terms count the takings of each Lease; 0 while it is not held. last counts all.
	terms []int
	last  int
	// tries are the intervals in which free Leases were tried to be taken.
	tries []struct{ first, last time.Time }
}

func newTurns(identity string, count int, clock clock.PassiveClock) *turns {
	return &turns{identity: identity, clock: clock, terms: make([]int, count), tries: make([]struct{ first, last time.Time }, count)}
}

// allow sets whether free Leases may be taken.
func (t *turns) allow(mayTake bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.mayTake = mayTake
}

// now returns the terms; 0 for Leases that are not held.
func (t *turns) now() []int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return slices.Clone(t.terms)
}

// end ends a term. The Lease may be written until it is released.
func (t *turns) end(shard int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.terms[shard] = 0
}

// write writes a Lease. A Lease that is not held is taken only when it is this process's turn.
func (t *turns) write(shard int, record *resourcelock.LeaderElectionRecord, write func() error) error {
	t.mutex.Lock()
	if t.terms[shard] > 0 || record.HolderIdentity != t.identity {
		t.mutex.Unlock()
		return write()
	}
	defer t.mutex.Unlock()
	if err := t.check(shard); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	t.last++
	t.terms[shard] = t.last
	return nil
}

// check returns an error if it is not this process's turn.
func (t *turns) check(shard int) error {
	if !t.mayTake {
		return errNotDeclared
	}
	now, try := t.clock.Now(), &t.tries[shard]
	if now.Sub(try.last) > patience {
		try.first = now
	}
	try.last = now
	holdsAny := slices.ContainsFunc(t.terms, func(term int) bool { return term > 0 })
	if holdsAny && now.Sub(try.first) < patience {
		return errLeft
	}
	return nil
}

// lock is the lock of a shard.
type lock struct {
	resourcelock.Interface
	shard int
	turns *turns
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.turns.write(l.shard, &record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.turns.write(l.shard, &record, func() error { return l.Interface.Update(ctx, record) })
}
