// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Sized returns a replica with its pod, as the rules of resources know it.
func (f *Facts) Sized(replica *workload.Replica) rightsize.Replica {
	id := workload.ReplicaID{Task: names.TaskName(&f.In.Job.Spec.Tasks[replica.Task]), Index: replica.Index}
	return rightsize.Replica{ReplicaID: id, Pod: f.In.PodNamed[replica.Pod]}
}

// ReplicaOf returns the task and index of the replica with a pod's name; false if the job has no such task.
func (f *Facts) ReplicaOf(pod string) (workload.Replica, bool) {
	for i := range f.In.Job.Spec.Tasks {
		if index, isOf := ranks.IndexOf(f.In.Job.Name, names.TaskName(&f.In.Job.Spec.Tasks[i]), pod); isOf {
			return workload.Replica{Task: i, Index: index, Pod: pod}, true
		}
	}
	return workload.Replica{}, false
}

// HasGrown reports whether a pod was out of memory, and its replica's next pod has more memory.
func (f *Facts) HasGrown(sizes *rightsize.Rules, replica *workload.Replica, pod *corev1.Pod) bool {
	if !state.HasFailed(f.In.Job, pod) || !podstate.OutOfMemory(pod) {
		return false
	}
	sized := f.Sized(replica)
	return sizes.HasGrown(&sized)
}
