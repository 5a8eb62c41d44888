// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe measures: when pods are created and run, which requests are sent, and what each program uses.
package observe

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/names"
)

// Count is what a watch has shown of the pods of a namespace.
type Count struct {
	// Existing pods were not deleted, and Running ones run.
	Existing, Running int
	// Created and Ran are when the last pod was created, and became running.
	Created, Ran time.Time
}

// Pods is what the kubelet's watch has shown of pods.
type Pods struct {
	// coordinator is called once for each coordinator that runs.
	coordinator func(pod *corev1.Pod)

	mutex sync.Mutex
	// The mutex guards all fields below: whether a pod runs, by UID, when the pods of each job were created, and the counts
	// of namespaces.
	runs    map[types.UID]bool
	created map[types.NamespacedName][]time.Time
	counts  map[string]*Count
}

// NewPods returns a record without pods. The function, which may be nil, is called when a coordinator begins to run.
func NewPods(coordinator func(*corev1.Pod)) *Pods {
	return &Pods{coordinator: coordinator, runs: map[types.UID]bool{}, created: map[types.NamespacedName][]time.Time{}, counts: map[string]*Count{}}
}

func jobOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: cmp.Or(pod.Labels[names.LabelJob], pod.Labels[names.LabelDIJobName])}
}

// See records an event of a pod.
func (p *Pods) See(pod *corev1.Pod, gone bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	count := p.counts[pod.Namespace]
	if count == nil {
		count = &Count{}
		p.counts[pod.Namespace] = count
	}
	ran, known := p.runs[pod.UID]
	if !known && !gone {
		count.Existing++
		count.Created = time.Now()
		p.created[jobOf(pod)] = append(p.created[jobOf(pod)], count.Created)
	}
	runs := !gone && pod.Status.Phase == corev1.PodRunning
	switch {
	case runs && !ran:
		count.Running++
		count.Ran = time.Now()
		if p.coordinator != nil && pod.Name == names.CoordinatorPod(jobOf(pod).Name) {
			p.coordinator(pod)
		}
	case ran && !runs:
		count.Running--
	}
	p.runs[pod.UID] = runs
	if gone && known {
		count.Existing--
		delete(p.runs, pod.UID)
	}
}

// Of returns the count of a namespace.
func (p *Pods) Of(namespace string) Count {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if count := p.counts[namespace]; count != nil {
		return *count
	}
	return Count{}
}

// Created returns when the pods of a job were created.
func (p *Pods) Created(job types.NamespacedName) []time.Time {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Clone(p.created[job])
}

// Forget forgets the jobs of a namespace, which has no pods.
func (p *Pods) Forget(namespace string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.counts, namespace)
	maps.DeleteFunc(p.created, func(job types.NamespacedName, _ []time.Time) bool { return job.Namespace == namespace })
}
