// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/store"
)

const (
	// maxWatchers bounds the callers that wait for a membership, and maxJobWatchers those of one job.
	maxWatchers, maxJobWatchers = 8192, 2048
)

// watchers are the callers that wait for another membership of their jobs.
type watchers struct {
	store *store.Store
	// patience is how long a caller waits.
	patience time.Duration
	// stopping closes when the server stops.
	stopping chan struct{}

	mutex sync.Mutex
	total int
	jobs  map[types.UID]*jobWatchers
}

// jobWatchers are the waiting callers of one job.
type jobWatchers struct {
	count int
	// changed closes at the next change of the job's membership.
	changed chan struct{}
}

func newWatchers(of *store.Store, patience time.Duration) *watchers {
	return &watchers{store: of, patience: patience, stopping: make(chan struct{}), jobs: map[types.UID]*jobWatchers{}}
}

// reached reports whether a membership is what a caller waits for.
type reached func(*v2alpha1.PublishedMembership) bool

// await returns the job as soon as its membership satisfies the predicate, and otherwise after the
// patience of a caller. It also returns when the server stops.
func (w *watchers) await(ctx context.Context, job *v2alpha1.DIJob, isReached reached) (*v2alpha1.DIJob, error) {
	if err := w.enter(job.UID); err != nil {
		return nil, err
	}
	defer w.leave(job.UID)
	bounded, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	for {
		changed := w.changed(job.UID)
		var current v2alpha1.DIJob
		key := client.ObjectKeyFromObject(job)
		if err := w.store.Get(ctx, key, &current); err != nil {
			return nil, store.ReadFailure(key, err)
		}
		if err := checkStateful(&current); err != nil {
			return nil, err
		}
		if current.UID != job.UID || isReached(store.Published(&current)) {
			return &current, nil
		}
		select {
		case <-changed:
		case <-w.stopping:
			return &current, nil
		case <-bounded.Done():
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("waiting for another membership: %w", err)
			}
			return &current, nil
		}
	}
}

// enter admits a caller. The caller must leave.
func (w *watchers) enter(job types.UID) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	known := w.jobs[job]
	if known == nil {
		known = &jobWatchers{changed: make(chan struct{})}
	}
	if w.total >= maxWatchers || known.count >= maxJobWatchers {
		return failure.New(failure.Unavailable, "too many callers wait for a membership: ask again later")
	}
	w.jobs[job] = known
	known.count++
	w.total++
	return nil
}

func (w *watchers) leave(job types.UID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.total--
	if known := w.jobs[job]; known.count > 1 {
		known.count--
	} else {
		delete(w.jobs, job)
	}
}

// changed returns a channel that closes at the next change. The caller must have entered.
func (w *watchers) changed(job types.UID) <-chan struct{} {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.jobs[job].changed
}

// notify wakes the callers of a job.
func (w *watchers) notify(job types.UID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if known := w.jobs[job]; known != nil {
		close(known.changed)
		known.changed = make(chan struct{})
	}
}
