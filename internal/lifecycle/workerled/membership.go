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
func (s *staffing) mayRelease(pod *corev1.Pod) bool {
	return s.handshake.MayRelease(pod)
}

// publishMembership records the next version of the membership.
func (s *staffing) publishMembership() state.Result {
	if !handshake.HasStateful(s.in.Job) {
		s.handshake.Publish(nil)
		return state.Continue
	}
	complete := s.completeTasks()
	desired := make(map[string]int, len(s.ranked.assignment.Replicas))
	for i := range s.ranked.assignment.Replicas {
		desired[s.ranked.assignment.Replicas[i].Pod] = s.ranked.assignment.Replicas[i].Task
	}
	s.handshake.Publish(func(pod *corev1.Pod) bool {
		task, isDesired := desired[pod.Name]
		return isDesired && complete[task]
	})
	return state.Continue
}

// completeTasks returns the tasks whose replicas may join. Replicas that hold state join together,
// so that state moves once.
func (s *staffing) completeTasks() map[int]bool {
	complete := make(map[int]bool, len(s.in.Job.Spec.Tasks))
	for task := range s.in.Job.Spec.Tasks {
		complete[task] = true
	}
	for i := range s.ranked.assignment.Replicas {
		replica := &s.ranked.assignment.Replicas[i]
		pod := s.in.PodNamed[replica.Pod]
		isReady := s.ranked.completed.Has(replica.Rank) || pod != nil && (podstate.Ready(pod) || s.handshake.IsListed(pod))
		if s.in.Job.Spec.Tasks[replica.Task].Drain != nil && !isReady {
			complete[replica.Task] = false
		}
	}
	return complete
}
