// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/server/failure"
)

const (
	// maxWatchers bounds the callers that wait for a membership, and maxJobWatchers those of one job.
	maxWatchers, maxJobWatchers = 8192, 2048
)

// watchers are the callers that wait for another membership of their jobs.
type watchers struct {
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

func newWatchers() *watchers {
	return &watchers{jobs: map[types.UID]*jobWatchers{}}
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
