// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// isCompletedByOther reports whether a completed rank belongs to another replica in the order of
// the spec. When a job is placed, ranks start in that order.
func (f *facts) isCompletedByOther() bool {
	before := f.in.Job.Status.Scaling
	if before == nil || f.recorded.IsEmpty() {
		return false
	}
	return ranks.IsCompletedByOther(f.in.Job, &f.recorded, f.counts.ByTask)
}

// whyRestarted describes the resize that restarts all replicas, "" if none does. The status
// determines which pods belong to the current attempt.
func (f *facts) whyRestarted(status *v2alpha1.DIJobStatus) string {
	if why := sizing.WhyRestarted(f.in.Job, f.resizes); why != "" || !f.changesFirstGroup(status) {
		return why
	}
	return "Kueue admits all replicas together"
}

// isRankedInOrder reports whether a pod has the rank that its replica gets in the order
// of the spec.
func (f *facts) isRankedInOrder(pod *corev1.Pod) bool {
	rank := podstate.Rank(pod)
	for i, count := range f.counts.ByTask {
		index, isOf := ranks.IndexOf(f.in.Job.Name, names.TaskName(&f.in.Job.Spec.Tasks[i]), pod.Name)
		if isOf {
			return index == rank && index < count
		}
		rank -= count
	}
	return false
}

// isElsewhere reports whether a pod is on another node than the allocation gives its
// rank, or was created for another node.
func isElsewhere(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	rank, allocation := podstate.Rank(pod), job.Status.Allocation
	return rank < 0 || int(rank) >= len(allocation) || allocation[rank] != cmp.Or(pod.Spec.NodeName, PlacedOn(pod))
}
