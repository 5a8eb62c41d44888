// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/server/failure"
)

const (
	// maxPending bounds the bytes of all pending items.
	maxPending = 16 << 20
	// pendingPerSecond is the rate limit of the writes of pending items of all jobs. It leaves the
	// rest of the calls to the API server to requests that wait for an answer.
	pendingPerSecond = 50
	// flushers is the number of concurrent writes of Flush.
	flushers = 32
)

// Debouncer limits the writes for each job by a token bucket. Items without a token are pending, and a
// newer item replaces an older one: the last of several is written.
type Debouncer[T any] struct {
	options DebouncerOptions[T]
	pace    *rate.Limiter

	mutex sync.Mutex
	// jobs are the jobs with a pending item, a running write, or a bucket that is not full.
	jobs map[types.UID]*debounced[T]
	// pending counts the bytes of pending items.
	pending int
	// flushing closes when items are written without a token, each once.
	flushing chan struct{}
	writing  sync.WaitGroup
}

// DebouncerOptions configure a Debouncer. All fields are required.
type DebouncerOptions[T any] struct {
	// Interval is the time after which a job gets another token.
	Interval time.Duration
	// Burst is the number of tokens of a full bucket.
	Burst int
	// Clock is the clock of the buckets.
	Clock clock.PassiveClock
	// Write writes a pending item.
	Write func(T) error
	// Size returns the bytes of an item.
	Size func(T) int
	// OnCoalesced is called for each item that a newer one replaces.
	OnCoalesced func()
}

// debounced is the state of a job.
type debounced[T any] struct {
	// full is the time at which the bucket is full. A write moves it by an interval.
	full time.Time
	next *T
	// isBusy reports whether an item is being written or about to be written.
	isBusy bool
	timer  *time.Timer
}

// NewDebouncer returns a debouncer.
func NewDebouncer[T any](options DebouncerOptions[T]) *Debouncer[T] {
	return &Debouncer[T]{
		options: options, pace: rate.NewLimiter(pendingPerSecond, pendingPerSecond),
		jobs: map[types.UID]*debounced[T]{}, flushing: make(chan struct{}),
	}
}

// Begin takes a token and reports whether there was one. If so, the caller must write the item now and
// then call End. Otherwise the item becomes pending and replaces an earlier pending item.
func (d *Debouncer[T]) Begin(job types.UID, item T) (bool, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	if known == nil {
		known = &debounced[T]{}
		d.jobs[job] = known
	}
	if !known.isBusy && known.next == nil && d.wait(known) <= 0 {
		d.take(known)
		return true, nil
	}
	return false, d.store(job, known, item)
}

// store makes an item pending.
func (d *Debouncer[T]) store(job types.UID, known *debounced[T], item T) error {
	pending := d.pending + d.options.Size(item)
	if known.next != nil {
		pending -= d.options.Size(*known.next)
	}
	if pending > maxPending {
		return failure.New(failure.Unavailable, "more is reported than can be kept: send it again later")
	}
	if known.next != nil {
		d.options.OnCoalesced()
	}
	known.next, d.pending = &item, pending
	d.schedule(job, known)
	return nil
}

// End ends a write. A failed write returns its token.
func (d *Debouncer[T]) End(job types.UID, err error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	if known == nil {
		return
	}
	known.isBusy = false
	if err != nil {
		known.full = known.full.Add(-d.options.Interval)
	}
	d.schedule(job, known)
}

// Release gives a job a token if it has none, for its last item.
func (d *Debouncer[T]) Release(job types.UID) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if known := d.jobs[job]; known != nil {
		known.full = known.full.Add(-max(d.wait(known), 0))
		d.schedule(job, known)
	}
}

// Forget drops a job that no longer exists, with its pending item.
func (d *Debouncer[T]) Forget(job types.UID) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	if known == nil {
		return
	}
	if known.timer != nil {
		known.timer.Stop()
	}
	if known.next != nil {
		d.pending -= d.options.Size(*known.next)
	}
	delete(d.jobs, job)
}

// Flush writes all pending items, and returns when all writes have ended. It is called once, after the last
// Begin.
func (d *Debouncer[T]) Flush() {
	d.mutex.Lock()
	close(d.flushing)
	var pending []types.UID
	for job, known := range d.jobs {
		if known.next != nil {
			pending = append(pending, job)
		}
	}
	d.mutex.Unlock()
	var flushed errgroup.Group
	flushed.SetLimit(flushers)
	for _, job := range pending {
		flushed.Go(func() error {
			d.due(job)
			return nil
		})
	}
	_ = flushed.Wait()
	d.writing.Wait()
}

// wait returns the time until a job has a token.
func (d *Debouncer[T]) wait(known *debounced[T]) time.Duration {
	if d.isFlushing() {
		return 0
	}
	return d.until(known.full.Add(-time.Duration(d.options.Burst-1) * d.options.Interval))
}

func (d *Debouncer[T]) until(at time.Time) time.Duration { return at.Sub(d.options.Clock.Now()) }

func (d *Debouncer[T]) isFlushing() bool {
	select {
	case <-d.flushing:
		return true
	default:
		return false
	}
}

// take takes a token.
func (d *Debouncer[T]) take(known *debounced[T]) {
	if now := d.options.Clock.Now(); known.full.Before(now) {
		known.full = now
	}
	known.full = known.full.Add(d.options.Interval)
	known.isBusy = true
	if known.timer != nil {
		known.timer.Stop()
	}
}

// schedule wakes an idle job when it has a token for its pending item or, without an item, when its
// bucket is full.
func (d *Debouncer[T]) schedule(job types.UID, known *debounced[T]) {
	if known.isBusy {
		return
	}
	if known.timer != nil {
		known.timer.Stop()
	}
	after := d.wait(known)
	if known.next == nil {
		after = d.until(known.full)
	}
	known.timer = time.AfterFunc(after, func() { d.due(job) })
}

// due writes the pending items of a job for which it has a token. If a write fails, the item stays pending
// unless there is a newer one.
func (d *Debouncer[T]) due(job types.UID) {
	for d.start(job) {
		d.waitForPace()
		if item := d.item(job); item != nil {
			if err := d.options.Write(*item); err != nil && failure.From(err).Kind == failure.Unavailable {
				d.keep(job, item)
			}
		}
		d.End(job, nil)
		d.writing.Done()
	}
}

// waitForPace blocks until the rate limit of all jobs allows a write, or until all items are flushed.
func (d *Debouncer[T]) waitForPace() {
	timer := time.NewTimer(d.pace.Reserve().Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.flushing:
	}
}

// start takes a token for the pending item of a job, and reports whether there are both. Otherwise it
// schedules the job, or drops one whose bucket is full.
func (d *Debouncer[T]) start(job types.UID) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	switch {
	case known == nil || known.isBusy:
		return false
	case known.next != nil && d.wait(known) <= 0:
		d.take(known)
		d.writing.Add(1)
		return true
	case known.next == nil && d.until(known.full) <= 0:
		delete(d.jobs, job)
	default:
		d.schedule(job, known)
	}
	return false
}

// item removes and returns the pending item of a job; nil if there is none.
func (d *Debouncer[T]) item(job types.UID) *T {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	if known == nil || known.next == nil {
		return nil
	}
	item := known.next
	known.next = nil
	d.pending -= d.options.Size(*item)
	return item
}

// keep makes an item pending again, unless there is a newer one.
func (d *Debouncer[T]) keep(job types.UID, item *T) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	known := d.jobs[job]
	switch {
	case known == nil || d.isFlushing():
	case known.next != nil:
		d.options.OnCoalesced()
	default:
		known.next = item
		d.pending += d.options.Size(*item)
	}
}
