// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/wire"
)

// maxPending bounds the bytes of all pending reports.
const maxPending = 16 << 20

// report is what a job reports of itself, on behalf of its context's sender.
type report struct {
	ctx     context.Context //nolint:containedctx // the report outlives its request
	id      wire.JobID
	content json.RawMessage
}

// reports debounces the reports of each job: it writes at most one per interval,
// and of several the last, because each write stores the whole job.
type reports struct {
	interval, timeout time.Duration
	write             func(context.Context, *report) error
	// count is called with the outcome of each report that is not written.
	count func(outcome string)

	mutex sync.Mutex
	// jobs are those whose interval has not ended.
	jobs map[types.UID]*debounced
	// pending is the bytes of pending reports.
	pending int
	writing sync.WaitGroup
}

// debounced is a job whose interval has not ended.
type debounced struct {
	next  *report
	timer *time.Timer
}

func newReports(times Times, write func(context.Context, *report) error, count func(string)) *reports {
	return &reports{interval: times.Profilings, timeout: times.Request, write: write, count: count, jobs: map[types.UID]*debounced{}}
}

// begin reports whether a job's report is written now. Otherwise it is pending,
// and replaces a report that was.
func (r *reports) begin(job types.UID, given *report) (bool, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, busy := r.jobs[job]
	if !busy {
		r.jobs[job] = &debounced{}
		return true, nil
	}
	pending := r.pending + len(given.content)
	if known.next != nil {
		pending -= len(known.next.content)
	}
	if pending > maxPending {
		return false, failure.New(failure.Unavailable, "more is reported than can be kept: send it again later")
	}
	if known.next != nil {
		r.count(reportCoalesced)
	}
	known.next, r.pending = given, pending
	return false, nil
}

// end begins the interval after a write. After a failure the next report is
// written at once.
func (r *reports) end(job types.UID, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.jobs[job]
	if known == nil {
		return
	}
	if err != nil && known.next == nil {
		delete(r.jobs, job)
		return
	}
	known.timer = time.AfterFunc(r.interval, func() { r.due(job) })
}

// due writes the pending report of a job, if there is one. A report that cannot
// be written now stays pending, unless there is a newer one.
func (r *reports) due(job types.UID) {
	given := r.take(job)
	if given == nil {
		return
	}
	defer r.writing.Done()
	ctx, cancel := context.WithTimeout(given.ctx, r.timeout)
	defer cancel()
	err := r.write(ctx, given)
	if err != nil && failure.From(err).Kind == failure.Unavailable {
		r.keep(job, given)
	}
	r.end(job, nil)
}

// take takes the pending report of a job to write it, and ends the debouncing of
// a job that has none.
func (r *reports) take(job types.UID) *report {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.jobs[job]
	if known == nil {
		return nil
	}
	given := known.next
	if given == nil {
		delete(r.jobs, job)
		return nil
	}
	known.next = nil
	r.pending -= len(given.content)
	r.writing.Add(1)
	return given
}

// keep makes a report pending again, unless there is a newer one.
func (r *reports) keep(job types.UID, given *report) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.jobs[job]
	switch {
	case known == nil:
	case known.next != nil:
		r.count(reportCoalesced)
	default:
		known.next = given
		r.pending += len(given.content)
	}
}

// flush writes all pending reports, as the server stops.
func (r *reports) flush() {
	r.mutex.Lock()
	var pending []types.UID
	for job, known := range r.jobs {
		if known.timer != nil {
			known.timer.Stop()
		}
		// A timer that has fired may not have taken its report yet.
		if known.next != nil {
			pending = append(pending, job)
		}
	}
	r.mutex.Unlock()
	for _, job := range pending {
		r.due(job)
	}
	r.writing.Wait()
}
