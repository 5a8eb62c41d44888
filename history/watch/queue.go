// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// maxGone bounds the deleted jobs that wait for the database. Others are found by the comparison after
// the next start, as unseen.
const maxGone = 20_000

// queue has the jobs to record. A job is in it once, however often it changes, so its size is bounded
// by the number of jobs. Adding never waits.
type queue struct {
	clock clock.PassiveClock

	mutex   sync.Mutex
	waiting batch
	// taken is what is being recorded.
	taken batch
}

// batch is what one write records.
type batch struct {
	// changed has when each job first changed since it was recorded.
	changed map[types.NamespacedName]time.Time
	// gone are deleted jobs.
	gone map[types.UID]gone
}

// gone is the last object of a deleted job, and when that was noticed.
type gone struct {
	job   *v2alpha1.DIJob
	since time.Time
}

func newBatch() batch {
	return batch{map[types.NamespacedName]time.Time{}, map[types.UID]gone{}}
}

func (b batch) length() int {
	return len(b.changed) + len(b.gone)
}

// oldest returns the first time of all, or the given one if that is earlier.
func (b batch) oldest(first time.Time) time.Time {
	for _, since := range b.changed {
		if since.Before(first) {
			first = since
		}
	}
	for _, job := range b.gone {
		if job.since.Before(first) {
			first = job.since
		}
	}
	return first
}

func newQueue(clock clock.PassiveClock) *queue {
	return &queue{clock: clock, waiting: newBatch()}
}

func (q *queue) add(job types.NamespacedName) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if _, waits := q.waiting.changed[job]; !waits {
		q.waiting.changed[job] = q.clock.Now()
	}
}

// addGone reports whether there was room.
func (q *queue) addGone(job *v2alpha1.DIJob) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if len(q.waiting.gone) >= maxGone {
		return false
	}
	q.waiting.gone[job.UID] = gone{job, q.clock.Now()}
	return true
}

// take removes up to so many jobs, which count as waiting until they are done or given back.
func (q *queue) take(limit int) batch {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.taken = newBatch()
	for uid, job := range q.waiting.gone {
		if q.taken.length() == limit {
			return q.taken
		}
		q.taken.gone[uid] = job
		delete(q.waiting.gone, uid)
	}
	for job, since := range q.waiting.changed {
		if q.taken.length() == limit {
			break
		}
		q.taken.changed[job] = since
		delete(q.waiting.changed, job)
	}
	return q.taken
}

// done ends the wait of what was taken.
func (q *queue) done() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.taken = batch{}
}

// giveBack returns what was taken and could not be recorded.
func (q *queue) giveBack() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	maps.Copy(q.waiting.changed, q.taken.changed)
	maps.Copy(q.waiting.gone, q.taken.gone)
	q.taken = batch{}
}

func (q *queue) isGone(uid types.UID) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	_, is := q.waiting.gone[uid]
	return is
}

// state returns how many jobs wait, and for how long the first one does.
func (q *queue) state() (waiting int, lag time.Duration) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	now := q.clock.Now()
	first := q.taken.oldest(q.waiting.oldest(now))
	return q.waiting.length() + q.taken.length(), now.Sub(first)
}
