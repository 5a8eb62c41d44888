// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/identity"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// IsCompletedByOther reports whether a completed rank belongs to another replica in the order of
// the spec. When a job is placed, ranks start in that order.
func (f *Facts) IsCompletedByOther() bool {
	before := f.In.Job.Status.Scaling
	if before == nil || f.Recorded.IsEmpty() {
		return false
	}
	return ranks.IsCompletedByOther(f.In.Job, &f.Recorded, f.Counts.ByTask)
}

// WhyRestarted describes the resize that restarts all replicas, "" if none does. The status
// determines which pods belong to the current attempt.
func (f *Facts) WhyRestarted(status *v2alpha1.DIJobStatus) string {
	if why := sizing.WhyRestarted(f.In.Job, f.Resizes); why != "" || !f.changesFirstGroup(status) {
		return why
	}
	return "Kueue admits all replicas together"
}

// IsRankedInOrder reports whether a pod has the rank that its replica gets in the order
// of the spec.
func (f *Facts) IsRankedInOrder(pod *corev1.Pod) bool {
	rank := podstate.Rank(pod)
	for i, count := range f.Counts.ByTask {
		index, isOf := ranks.IndexOf(f.In.Job.Name, names.TaskName(&f.In.Job.Spec.Tasks[i]), pod.Name)
		if isOf {
			return index == rank && index < count
		}
		rank -= count
	}
	return false
}

// HasGrown reports whether a pod was out of memory, and its replica's next pod has more memory.
func (f *Facts) HasGrown(sizes *rightsize.Rules, replica *workload.Replica, pod *corev1.Pod) bool {
	if !state.HasFailed(f.In.Job, pod) || !podstate.OutOfMemory(pod) {
		return false
	}
	sized := identity.Sized(f.In, replica)
	return sizes.HasGrown(&sized)
}
