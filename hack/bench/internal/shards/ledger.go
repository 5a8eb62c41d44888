// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/names"
)

// ledger is what the kubelet's watch has shown of the pods of a round.
type ledger struct {
	mutex sync.Mutex
	// The mutex guards all fields below: the phases of pods by UID, when the last pod of each job was created and
	// how many it has had, how many pods run and since when, and how many were deleted.
	phases  map[types.UID]corev1.PodPhase
	jobs    map[string]created
	running int
	since   time.Time
	deleted int
}

// created are the pods of a job that were ever created.
type created struct {
	pods int
	last time.Time
}

// see records an event of a pod.
func (l *ledger) see(pod *corev1.Pod, gone bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if gone {
		l.deleted++
		return
	}
	if l.phases == nil {
		l.phases, l.jobs = map[types.UID]corev1.PodPhase{}, map[string]created{}
	}
	before, known := l.phases[pod.UID]
	l.phases[pod.UID] = pod.Status.Phase
	if job := pod.Labels[names.LabelJob]; !known {
		l.jobs[job] = created{pods: l.jobs[job].pods + 1, last: time.Now()}
	}
	if pod.Status.Phase == corev1.PodRunning && before != corev1.PodRunning {
		l.running++
		l.since = time.Now()
	}
}

// reset forgets the pods.
func (l *ledger) reset() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.phases, l.jobs, l.running, l.deleted = nil, nil, 0, 0
}

// runs returns how many pods have become running, and when the last did.
func (l *ledger) runs() (int, time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.running, l.since
}

// of returns the pods of a job that were ever created.
func (l *ledger) of(job string) created {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.jobs[job]
}

// gone returns how many pods were deleted.
func (l *ledger) gone() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.deleted
}
