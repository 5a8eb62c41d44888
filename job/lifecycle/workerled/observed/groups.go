// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// A job queues with Kueue through its pods. The pods with which an attempt of a worker-led job
// starts are its first group. Kueue admits, evicts and finishes a group as a whole. It neither
// resizes a group nor reopens a finished one, so each attempt and reschedule has its own groups.
// A recreated pod joins the first group while others of it are active; otherwise it queues by
// itself. Replicas that are added later are groups of their own. A job that started without a queue
// continues without one.

// firstGroup is the number of the group of a job's start.
const firstGroup = 0

// GroupOf returns the metadata of a pod of a worker-led job, the number of its group, and whether
// the operator created that group.
func (f *Facts) GroupOf(pod *corev1.Pod) (meta queueing.PodMeta, number int32, grouped bool) {
	meta = queueing.FromPod(pod)
	number, grouped = meta.Number(f.In.Job, podstate.Attempt(pod), podstate.Reschedule(pod))
	return meta, number, grouped
}

// InFirstGroup returns the metadata of a pod that is in the first group of its attempt.
func (f *Facts) InFirstGroup(pod *corev1.Pod) (queueing.PodMeta, bool) {
	meta, number, grouped := f.GroupOf(pod)
	return meta, grouped && number == firstGroup
}

// IsGrouped reports whether the pods of a status's attempt are groups that Kueue admits as a
// whole.
func (f *Facts) IsGrouped(status *v2alpha1.DIJobStatus) bool {
	return slices.ContainsFunc(f.In.Pods, func(pod *corev1.Pod) bool {
		_, _, grouped := f.GroupOf(pod)
		return grouped && !state.IsStale(pod, status)
	})
}

// IsInLine reports whether a pod keeps its group unfinished.
func IsInLine(pod *corev1.Pod) bool {
	return !podstate.Finished(pod) && !queueing.HasOnlyFinalizer(pod) && !queueing.IsAbandoned(pod)
}
