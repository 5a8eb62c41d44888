// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// maxGone bounds the deleted jobs that wait for the database. Others are found by the comparison after
// the next start, as unseen.
const maxGone = 20_000

// queue has the jobs to record. A job is in it once, however often it changes, so its size is bounded
// by the number of jobs. Adding never waits.
type queue struct {
	mutex   sync.Mutex
	changed map[types.NamespacedName]bool
	// gone are the last objects of deleted jobs.
	gone map[types.UID]*v2alpha1.DIJob
}

// batch is what one write records.
type batch struct {
	changed []types.NamespacedName
	gone    []*v2alpha1.DIJob
}

func newQueue() *queue {
	return &queue{changed: map[types.NamespacedName]bool{}, gone: map[types.UID]*v2alpha1.DIJob{}}
}

func (q *queue) add(job types.NamespacedName) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.changed[job] = true
}

// addGone reports whether there was room.
func (q *queue) addGone(job *v2alpha1.DIJob) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if len(q.gone) >= maxGone {
		return false
	}
	q.gone[job.UID] = job
	return true
}

// take removes up to so many jobs.
func (q *queue) take(limit int) batch {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	var taken batch
	for uid, job := range q.gone {
		if len(taken.gone) == limit {
			return taken
		}
		taken.gone = append(taken.gone, job)
		delete(q.gone, uid)
	}
	for job := range q.changed {
		if len(taken.gone)+len(taken.changed) == limit {
			break
		}
		taken.changed = append(taken.changed, job)
		delete(q.changed, job)
	}
	return taken
}

// giveBack returns what could not be recorded.
func (q *queue) giveBack(taken batch) {
	for _, job := range taken.changed {
		q.add(job)
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for _, job := range taken.gone {
		q.gone[job.UID] = job
	}
}

func (q *queue) isGone(uid types.UID) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.gone[uid] != nil
}

func (q *queue) length() int {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return len(q.changed) + len(q.gone)
}
