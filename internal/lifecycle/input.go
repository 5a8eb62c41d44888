// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// input is the observation and what follows from it alone. It is computed once for
// each reconcile; no rule changes it.
type input struct {
	Observed
	// now is the time as a status stores it.
	now     metav1.Time
	builder *workload.Builder
	// pods and services are indexed by name.
	pods     map[string]*corev1.Pod
	services map[string]*corev1.Service
	// configMaps are those whose content matches their name, by name.
	configMaps map[string]*corev1.ConfigMap

	// The fields below are of worker-led jobs.

	// recorded are the completed ranks of the recorded status.
	recorded rankSet
	// counts are the desired replicas of each task.
	counts counts
	// resizes are the tasks whose desired count changed since it was last acted on.
	resizes []resize
	// tooMany describes which counts give the job more pods than it may have, or why no
	// pods can be built for them.
	tooMany []string
}

// newInput computes the input. Each step may read the ones before.
func newInput(observed Observed) *input {
	in := &input{
		Observed:   observed,
		now:        metav1.NewTime(observed.Now.Truncate(time.Second)),
		builder:    workload.NewBuilder(observed.Job, observed.Settings),
		pods:       make(map[string]*corev1.Pod, len(observed.Pods)),
		services:   make(map[string]*corev1.Service, len(observed.Services)),
		configMaps: genuine(&observed),
	}
	if !IsCoordinatorLed(in.Job) {
		in.Pods = podstate.IgnoreInjected(in.Pods)
	}
	for _, pod := range in.Pods {
		in.pods[pod.Name] = pod
	}
	for _, service := range in.Services {
		in.services[service.Name] = service
	}
	if !IsCoordinatorLed(in.Job) {
		in.readWorkers()
	}
	return in
}

// readWorkers computes the counts of a worker-led job before anything is sized by
// them. Schema and webhook reject a job with too many pods, but neither the scale
// subresource nor a write of the status passes them.
func (in *input) readWorkers() {
	in.recorded = readRanks(in.Job.Status.CompletedRanks)
	in.counts = wantedCounts(in.counted())
	if IsFinished(&in.Job.Status) {
		return
	}
	if in.tooMany = in.excess(&in.counts); len(in.tooMany) > 0 {
		return
	}
	in.resizes = findResizes(in.Observed, &in.counts)
	if in.Job.Status.Scaling == nil && statusWriter(in.Job).isOperator() {
		// Nobody asked for another count: the pods are still to come.
		in.resizes = nil
	}
	in.tooMany = in.unbuildable()
}
