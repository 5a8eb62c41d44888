// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// watchedLock ends a term no later than another one may be elected. What elects
// does so too late: it tries to get a lease back that is another's already, and
// counts the time without a renewal from when the last one was answered, not from
// when it was begun. A renewal is tried twice where the answer is lost, by one
// record both times: others count from when they have seen the first.
//
// It is used by one goroutine.
type watchedLock struct {
	resourcelock.Interface
	// lost ends the term, and limit is how long it lasts without a renewal.
	lost  func()
	limit time.Duration
	// overdue fires at that limit; nil before the lease is held.
	overdue *time.Timer
}

// Get implements resourcelock.Interface.
func (l *watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && l.overdue != nil && record.HolderIdentity != l.Identity() {
		l.lost()
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *watchedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.hold(record.RenewTime.Time, l.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface.
func (l *watchedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.hold(record.RenewTime.Time, l.Interface.Update(ctx, record))
}

func (l *watchedLock) hold(since time.Time, err error) error {
	left := time.Until(since.Add(l.limit))
	switch {
	case err != nil:
	case l.overdue == nil:
		l.overdue = time.AfterFunc(left, l.lost)
	default:
		l.overdue.Reset(left)
	}
	return err
}

// close is called when nothing uses the lock any more.
func (l *watchedLock) close() {
	if l.overdue != nil {
		l.overdue.Stop()
	}
}
