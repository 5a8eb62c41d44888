// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/lifecycle/handshake"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// change identifies what a job desires, for removals that failed.
func (f *facts) change() string {
	plan := ""
	if scaling := f.in.Job.Status.Scaling; scaling != nil && scaling.Plan != nil {
		plan = scaling.Plan.UID
	}
	return fmt.Sprintf("%d/%d/%s", f.in.Job.Generation, f.counts.Total, plan)
}

// mayRelease reports whether a pod may be deleted or replaced by intent now.
func (a *assigned) mayRelease(pod *corev1.Pod) bool {
	return a.handshake.MayRelease(pod)
}

// publishMembership records the next version of the membership.
func (a *assigned) publishMembership() state.Result {
	if !handshake.HasStateful(a.in.Job) {
		a.handshake.Publish(nil)
		return state.Continue
	}
	complete := a.completeTasks()
	desired := make(map[string]int, len(a.assignment.Replicas))
	for i := range a.assignment.Replicas {
		desired[a.assignment.Replicas[i].Pod] = a.assignment.Replicas[i].Task
	}
	a.handshake.Publish(func(pod *corev1.Pod) bool {
		task, isDesired := desired[pod.Name]
		return isDesired && complete[task]
	})
	return state.Continue
}

// completeTasks returns the tasks whose replicas may join. Replicas that hold state join together,
// so that state moves once.
func (a *assigned) completeTasks() map[int]bool {
	complete := make(map[int]bool, len(a.in.Job.Spec.Tasks))
	for task := range a.in.Job.Spec.Tasks {
		complete[task] = true
	}
	for i := range a.assignment.Replicas {
		replica := &a.assignment.Replicas[i]
		pod := a.in.PodNamed[replica.Pod]
		isReady := a.completed().Has(replica.Rank) || pod != nil && (podstate.Ready(pod) || a.handshake.IsListed(pod))
		if a.in.Job.Spec.Tasks[replica.Task].Drain != nil && !isReady {
			complete[replica.Task] = false
		}
	}
	return complete
}
