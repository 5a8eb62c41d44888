// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"cmp"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/names"
)

// watched is what the kubelet's watch has shown of pods.
type watched struct {
	// coordinator is called once for each coordinator that runs.
	coordinator func(pod *corev1.Pod)

	mutex sync.Mutex
	// The mutex guards all fields below: the pods that run, by UID, and when the pods of each job
	// were created.
	running map[types.UID]bool
	created map[types.NamespacedName][]time.Time
	count   map[string]int
}

func newWatched(coordinator func(*corev1.Pod)) *watched {
	return &watched{
		coordinator: coordinator,
		running:     map[types.UID]bool{}, created: map[types.NamespacedName][]time.Time{}, count: map[string]int{},
	}
}

func jobOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: cmp.Or(pod.Labels[names.LabelJob], pod.Labels[names.LabelDIJobName])}
}

// see records an event of a pod.
func (s *watched) see(pod *corev1.Pod, gone bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	ran, known := s.running[pod.UID]
	switch {
	case gone:
		if ran {
			s.count[pod.Namespace]--
		}
		delete(s.running, pod.UID)
		return
	case !known:
		s.running[pod.UID] = false
		s.created[jobOf(pod)] = append(s.created[jobOf(pod)], time.Now())
	}
	if ran || pod.Status.Phase != corev1.PodRunning {
		return
	}
	s.running[pod.UID] = true
	s.count[pod.Namespace]++
	if job := jobOf(pod); pod.Name == names.CoordinatorPod(job.Name) {
		s.coordinator(pod)
	}
}

// runningIn returns how many pods of a namespace run.
func (s *watched) runningIn(namespace string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.count[namespace]
}

// createdOf returns when the pod of a job with the given number was created.
func (s *watched) createdOf(job types.NamespacedName, number int) (time.Time, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if created := s.created[job]; number < len(created) {
		return created[number], true
	}
	return time.Time{}, false
}

// forget forgets the jobs of a namespace.
func (s *watched) forget(namespace string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	maps.DeleteFunc(s.created, func(job types.NamespacedName, _ []time.Time) bool { return job.Namespace == namespace })
}
