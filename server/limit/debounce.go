// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/server/failure"
)

// maxPending bounds the bytes of all pending items.
const maxPending = 16 << 20

// Debouncer debounces the writes for each job. It writes at most one item per interval: the last of several.
type Debouncer[T any] struct {
	options DebouncerOptions[T]

	mutex sync.Mutex
	// jobs are the jobs whose interval has not ended.
	jobs map[types.UID]*debounced[T]
	// pending counts the bytes of pending items.
	pending int
	writing sync.WaitGroup
}

// DebouncerOptions configure a Debouncer. All fields are required.
type DebouncerOptions[T any] struct {
	// Interval is the minimum time between two writes for a job.
	Interval time.Duration
	// Write writes a pending item.
	Write func(T) error
	// Size returns the bytes of an item.
	Size func(T) int
	// OnCoalesced is called for each item that a newer one replaces.
	OnCoalesced func()
}

// debounced is a job whose interval has not ended.
type debounced[T any] struct {
	next  *T
	timer *time.Timer
}

// NewDebouncer returns a debouncer.
func NewDebouncer[T any](options DebouncerOptions[T]) *Debouncer[T] {
	return &Debouncer[T]{options: options, jobs: map[types.UID]*debounced[T]{}}
}

// Begin reports whether the caller must write an item now and then call End. Otherwise the item becomes
// pending and replaces an earlier pending item.
func (d *Debouncer[T]) Begin(job types.UID, item T) (bool, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known, busy := d.jobs[job]
	if !busy {
		d.jobs[job] = &debounced[T]{}
		return true, nil
	}
	pending := d.pending + d.options.Size(item)
	if known.next != nil {
		pending -= d.options.Size(*known.next)
	}
	if pending > maxPending {
		return false, failure.New(failure.Unavailable, "more is reported than can be kept: send it again later")
	}
	if known.next != nil {
		d.options.OnCoalesced()
	}
	known.next, d.pending = &item, pending
	return false, nil
}

// End starts the interval after a write. After a failed write the next item is written at once.
func (d *Debouncer[T]) End(job types.UID, err error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	if known == nil {
		return
	}
	if err != nil && known.next == nil {
		delete(d.jobs, job)
		return
	}
	known.timer = time.AfterFunc(d.options.Interval, func() { d.due(job) })
}

// due writes the pending item of a job, if there is one. If the write fails, the item stays pending unless
// there is a newer one.
func (d *Debouncer[T]) due(job types.UID) {
	item := d.take(job)
	if item == nil {
		return
	}
	defer d.writing.Done()
	if err := d.options.Write(*item); err != nil && failure.From(err).Kind == failure.Unavailable {
		d.keep(job, item)
	}
	d.End(job, nil)
}

// take returns the pending item of a job, which the caller must write. Without a pending item it stops
// debouncing the job.
func (d *Debouncer[T]) take(job types.UID) *T {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	if known == nil {
		return nil
	}
	item := known.next
	if item == nil {
		delete(d.jobs, job)
		return nil
	}
	known.next = nil
	d.pending -= d.options.Size(*item)
	d.writing.Add(1)
	return item
}

// keep makes an item pending again, unless there is a newer one.
func (d *Debouncer[T]) keep(job types.UID, item *T) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	switch {
	case known == nil:
	case known.next != nil:
		d.options.OnCoalesced()
	default:
		known.next = item
		d.pending += d.options.Size(*item)
	}
}

// Flush writes all pending items.
func (d *Debouncer[T]) Flush() {
	d.mutex.Lock()
	var pending []types.UID
	for job, known := range d.jobs {
		if known.timer != nil {
			known.timer.Stop()
		}
		// The timer may have fired without taking its item yet.
		if known.next != nil {
			pending = append(pending, job)
		}
	}
	d.mutex.Unlock()
	for _, job := range pending {
		d.due(job)
	}
	d.writing.Wait()
}
