// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"opendilab.org/di-orchestrator/controllers/shards"
)

// turns count how often this process has taken each Lease.
type turns struct {
	mutex sync.Mutex
	// terms are the takings of each Lease; 0 while it is not held. last counts all.
	terms []int
	last  int
}

func newTurns(count int) *turns { return &turns{terms: make([]int, count)} }

// now returns the terms; 0 for Leases that are not held.
func (t *turns) now() []int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return slices.Clone(t.terms)
}

// begin begins a term, unless one has begun.
func (t *turns) begin(shard int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.terms[shard] == 0 {
		t.last++
		t.terms[shard] = t.last
	}
}

// end ends a term. The Lease may be written until it is released.
func (t *turns) end(shard int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.terms[shard] = 0
}

// lock is the lock of a shard that is free.
type lock struct {
	resourcelock.Interface
	shard int
	turns *turns
	// free is the Lease as it was when it had expired, or had no holder.
	free shards.Lease
}

// Get implements resourcelock.Interface. client-go would wait until a Lease that it has not read before expires. This process has seen
// it expire, so the record has no holder. If the holder renews the Lease meanwhile, taking it is a conflict.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	if record.HolderIdentity != l.Identity() && record.HolderIdentity == l.free.Holder && record.RenewTime.Time.Equal(l.free.Renewed) {
		record.HolderIdentity = ""
	}
	return record, raw, nil
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.Interface.Create(ctx, record); err != nil {
		return err
	}
	l.written(&record)
	return nil
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	l.written(&record)
	return nil
}

// written begins a term when the written Lease names this process.
func (l *lock) written(record *resourcelock.LeaderElectionRecord) {
	if record.HolderIdentity == l.Identity() {
		l.turns.begin(l.shard)
	}
}
