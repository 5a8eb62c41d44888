// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package election elects one of several programs, term after term: one that has
// lost its lease stops what only the elected one may do, and can be elected again,
// while all else that it does goes on. It must not know what the elected one does.
package election

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// Options are what an Election needs; all are required, but for Lock.
type Options struct {
	// Lock is the lease. Without one there is nobody else, and one term.
	Lock resourcelock.Interface
	// Name tells the election apart in metrics.
	Name string
	// Lease is after how long without news of the elected one another one is
	// elected, Renew how long that one goes on without a word from the API server,
	// and Retry how often the lease is looked at.
	Lease, Renew, Retry time.Duration
	// Act is what the elected one does, for one term, with which the context ends.
	// When it returns nothing may be under way any more that it began; an error
	// ends the election.
	Act func(context.Context) error
	// Log is told of terms.
	Log logr.Logger
}

// Election elects this program, or another one.
type Election struct {
	options Options
	// term is closed when the current or last term has ended; nil before the first.
	term atomic.Pointer[<-chan struct{}]
}

// New returns an election that nobody has begun.
func New(options Options) *Election {
	return &Election{options: options}
}

// IsElected reports whether this program is the elected one.
func (e *Election) IsElected() bool {
	term := e.term.Load()
	if term == nil {
		return false
	}
	select {
	case <-*term:
		return false
	default:
		return true
	}
}

// Run campaigns, and acts when elected, until the context ends or Act fails. The
// lease is given back when Act has returned, so that another one is elected at once.
func (e *Election) Run(ctx context.Context) error {
	if e.options.Lock == nil {
		return e.act(ctx)
	}
	for ctx.Err() == nil {
		if err := e.campaign(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *Election) act(term context.Context) error {
	done := term.Done()
	e.term.Store(&done)
	return e.options.Act(term)
}

// campaign waits to be elected, and acts for one term.
func (e *Election) campaign(ctx context.Context) error {
	// What elects outlives the term: a lease that is not renewed while what was begun
	// comes to its end would be another's too soon.
	electing, stop := context.WithCancel(logr.NewContext(context.WithoutCancel(ctx), e.options.Log))
	defer stop()
	term, end := context.WithCancel(ctx)
	defer end()
	began := make(chan struct{})
	lock := &watchedLock{Interface: e.options.Lock, lost: end, limit: e.options.Lease - e.options.Retry}
	elector, err := e.elector(lock, func(leading context.Context) {
		context.AfterFunc(leading, end)
		close(began)
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(electing)
	}()
	select {
	case <-began:
		err = e.act(term)
	case <-ctx.Done():
	}
	lost := term.Err() != nil && ctx.Err() == nil
	stop()
	<-ended
	lock.close()
	if lost {
		e.options.Log.Info("Lost the lease; stopped acting as leader, campaigning again")
		return err
	}
	e.release(ctx)
	return err
}

func (e *Election) elector(lock resourcelock.Interface, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: e.options.Name,
		LeaseDuration: e.options.Lease, RenewDeadline: e.options.Renew, RetryPeriod: e.options.Retry,
		// It would give the lease back before it says that the term has ended.
		ReleaseOnCancel: false,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return nil, fmt.Errorf("making what elects: %w", err)
	}
	return elector, nil
}

// release gives the lease back, if it is ours. Without it another one waits until
// it has run out.
func (e *Election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.Renew)
	defer cancel()
	lock := e.options.Lock
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		record, _, err := lock.Get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil || record.HolderIdentity != lock.Identity() {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	})
	if err != nil {
		e.options.Log.Info("Cannot release the lease; a standby acquires it when it expires", "lease", lock.Describe(), "reason", err.Error())
	}
}
