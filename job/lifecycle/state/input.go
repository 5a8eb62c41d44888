// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/workload"
)

// Input is the observation and what follows from it alone. It is computed once for
// each reconcile; no rule changes it.
type Input struct {
	Observed
	// Timestamp is the time as a status stores it.
	Timestamp metav1.Time
	Builder   *workload.Builder
	// PodNamed and services are indexed by name.
	PodNamed     map[string]*corev1.Pod
	ServiceNamed map[string]*corev1.Service
	// ConfigMapNamed are the ConfigMaps whose content matches their name, by name.
	ConfigMapNamed map[string]*corev1.ConfigMap
	// Changed are those of Pods that others changed, as they must be.
	Changed []*corev1.Pod
}

// NewInput computes the input.
func NewInput(observed Observed) *Input {
	in := &Input{
		Observed:       observed,
		Timestamp:      metav1.NewTime(observed.Now.Truncate(time.Second)),
		Builder:        workload.NewBuilder(observed.Job, observed.Settings),
		PodNamed:       make(map[string]*corev1.Pod, len(observed.Pods)),
		ServiceNamed:   make(map[string]*corev1.Service, len(observed.Services)),
		ConfigMapNamed: genuine(&observed),
	}
	if !IsCoordinatorLed(in.Job) {
		in.Pods = podstate.IgnoreInjected(in.Pods)
	}
	in.markProbeKills()
	for _, pod := range in.Pods {
		in.PodNamed[pod.Name] = pod
	}
	for _, service := range in.Services {
		in.ServiceNamed[service.Name] = service
	}
	return in
}

// markProbeKills replaces the pods that a probe ended by failed ones.
func (in *Input) markProbeKills() {
	isCopied := false
	for i, pod := range in.Pods {
		kill := in.ProbeKills[pod.UID]
		if kill == "" || podstate.Terminating(pod) {
			continue
		}
		if !isCopied {
			in.Pods, isCopied = slices.Clone(in.Pods), true
		}
		in.Pods[i] = podstate.AsKilledByProbe(pod, kill)
	}
}

// IsEarlier reports whether an object names a job in another version than the stored
// one.
func (in *Input) IsEarlier(object metav1.Object) bool {
	_, is := workload.WithOwnersAt(object.GetOwnerReferences(), in.Settings.JobVersion, in.Job.UID)
	return is
}

// StoredReferences returns an object's owner references with references to jobs in the stored
// version. The other references are unchanged.
func (in *Input) StoredReferences(object metav1.Object) []metav1.OwnerReference {
	references, _ := workload.WithOwnersAt(object.GetOwnerReferences(), in.Settings.JobVersion, in.Job.UID)
	return references
}

// genuine returns the ConfigMaps whose content matches their name.
func genuine(observed *Observed) map[string]*corev1.ConfigMap {
	found := make(map[string]*corev1.ConfigMap, len(observed.ConfigMaps))
	for _, configMap := range observed.ConfigMaps {
		if workload.IsNodesConfigMap(observed.Job, configMap) {
			found[configMap.Name] = configMap
		}
	}
	return found
}

// AsksForGang reports whether a job requests a gang.
func AsksForGang(job *v2alpha1.DIJob) bool {
	return job.Spec.Scheduling != nil && job.Spec.Scheduling.Gang != nil
}

// Queued returns Kueue's metadata for the job's pods, none if the job has no queue.
func (in *Input) Queued() queueing.PodMeta {
	if !in.Kueue || in.IsVolcanosQueue() {
		return queueing.PodMeta{}
	}
	return queueing.ForJob(in.Job)
}

// IsVolcanosQueue reports whether the queue in the spec is a queue of Volcano, which schedules the
// job's gang. The queue in the job's label is a queue of Kueue.
func (in *Input) IsVolcanosQueue() bool {
	if in.Job.Labels[queueing.LabelQueue] != "" || !AsksForGang(in.Job) {
		return false
	}
	provider, _ := gang.Choose(in.Gangs.Setting, in.Job.Spec.Scheduling.SchedulerName, in.Gangs.Served)
	return provider != nil && provider.Name == gang.Volcano
}
