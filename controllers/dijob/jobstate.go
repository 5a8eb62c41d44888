// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// jobStates holds what the operator keeps of each job in memory between reconciles.
// It is lost with the process, which then finds out by asking the API server.
type jobStates struct {
	mutex sync.Mutex
	jobs  map[types.NamespacedName]*jobState
}

// jobState is what is kept of one job.
type jobState struct {
	// statusWritten is when a status was last written.
	statusWritten time.Time
	// pods is how many the job had in the last reconcile.
	pods int
	// due is when the job is reconciled again although the last reconcile failed.
	due time.Time
	// refusals are the creations that the API server refused, by kind, for the versions
	// of the job and its configuration in refusedOf.
	refusals  map[string]lifecycle.Refusal
	refusedOf string
	// refusedWrites are its other refusals, by verb, for the same versions.
	refusedWrites map[string]refusedWrites
	// conflicts are the names that other owners have.
	conflicts []conflict
}

// update calls a function with the state of a job, which it creates if there is none.
func (s *jobStates) update(job types.NamespacedName, do func(*jobState)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	state := s.jobs[job]
	if state == nil {
		state = &jobState{}
		if s.jobs == nil {
			s.jobs = map[types.NamespacedName]*jobState{}
		}
		s.jobs[job] = state
	}
	do(state)
}

// get returns a copy of a job's state.
func (s *jobStates) get(job types.NamespacedName) jobState {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if state := s.jobs[job]; state != nil {
		return *state
	}
	return jobState{}
}

// forget drops the state of a job that is gone.
func (s *jobStates) forget(job types.NamespacedName) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.jobs, job)
}

// setDue records after how long a job is reconciled again although a reconcile failed:
// the queue knows only the backoff. 0 stands for never.
func (s *jobStates) setDue(job types.NamespacedName, after time.Duration, now time.Time) {
	s.update(job, func(state *jobState) {
		state.due = time.Time{}
		if after > 0 {
			state.due = now.Add(after)
		}
	})
}

// recordStatusWrite records when a status was written.
func (s *jobStates) recordStatusWrite(job types.NamespacedName, now time.Time) {
	s.update(job, func(state *jobState) { state.statusWritten = now })
}
