// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failures decides whether a coordinator-led job ends: with its coordinator, at its deadline or because it is
// suspended. Before that, replicas that were out of memory get more.
package failures

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/endings"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Stage decides whether the job ends.
type Stage struct {
	out   *state.Plan
	in    *state.Input
	facts *observed.Facts
	sizes *rightsize.Rules
	end   End
}

// End is how the coordinator of a job has ended. The zero value is that of one that has not.
type End struct {
	// IsOver is set if it has finished, and HasSucceeded says how.
	IsOver, HasSucceeded bool
	// HasGrown is set if it was out of memory, and its next pod has more.
	HasGrown bool
}

// New returns the rules of the end of the job.
func New(out *state.Plan, job *observed.Facts) *Stage {
	s := &Stage{out: out, in: job.In, facts: job, sizes: rightsize.New(out, job.In)}
	s.end = s.endOf(job.Coordinator)
	return s
}

// End returns how the coordinator has ended.
func (s *Stage) End() End { return s.end }

// Rules are the rules of the end of the job, in order.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "the memory of the group is recorded", Apply: s.sizes.Inherit},
		{Name: "a finished job expires", Apply: endings.New(s.out, s.in).Expire},
		{Name: "a finished job is cleaned up", Apply: endings.New(s.out, s.in).CleanUp},
		{Name: "resources of removed members are forgotten", Apply: s.forgetResources},
		{Name: "out-of-memory replicas get more memory", Apply: s.growMemory},
		{Name: "the job finishes with its coordinator", Apply: s.endWithCoordinator},
		{Name: "the active deadline passes", Apply: endings.New(s.out, s.in).EndAtDeadline},
		{Name: "a suspended job has no pods", Apply: endings.New(s.out, s.in).Suspend},
	}
}

// forgetResources removes the recorded resources of members that the job no longer has.
func (s *Stage) forgetResources() state.Result {
	if !s.facts.IsKnown || !slices.ContainsFunc(s.out.Scaling().Resources, func(override v2alpha1.ResourceOverride) bool { return override.Slot != "" }) {
		return state.Continue
	}
	isMember := make(map[string]bool, len(s.facts.Slots))
	for i := range s.facts.Slots {
		isMember[s.facts.Slots[i].Member.Slot] = true
	}
	s.sizes.Forget(isMember)
	return state.Continue
}

// growMemory records more memory for replicas that were out of memory. Their next pods have it: that of
// the coordinator under its name, those of a member under new names. A coordinator that reports a failure
// may make the pod that was out of memory excess before the operator observes how it ended.
func (s *Stage) growMemory() state.Result {
	if autoscale := s.in.Job.Spec.Autoscale; autoscale == nil || autoscale.Memory == nil || state.IsFinished(&s.in.Job.Status) || state.IsSuspended(s.in.Job) {
		return state.Continue
	}
	var texts []string
	for replica := range s.facts.Replicas() {
		pod := replica.Pod
		if !rightsize.WasOutOfMemory(pod) || podstate.Terminating(pod) || rightsize.IsResizing(pod) || s.sizes.HasGrown(&replica) {
			continue
		}
		text, refusal := s.sizes.Grow(&replica)
		switch {
		case refusal == "":
			texts = append(texts, text)
		case pod == s.facts.Coordinator:
			// The job ends with it. A member is replaced as after any other failure.
			s.out.Event(corev1.EventTypeWarning, v2alpha1.OverrideOutOfMemory, refusal)
		}
	}
	if len(texts) == 0 {
		return state.Continue
	}
	s.sizes.ReportAdjusted(v2alpha1.OverrideOutOfMemory, texts)
	return state.Settled
}

func (s *Stage) endWithCoordinator() state.Result {
	pod := s.facts.Coordinator
	if !s.end.IsOver || podstate.Terminating(pod) || !s.end.HasSucceeded && s.end.HasGrown {
		return state.Continue
	}
	if s.end.HasSucceeded {
		problems.New(s.out, s.in).Finish(v2alpha1.JobSucceeded, fmt.Sprintf("coordinator %s has completed", pod.Name))
		return state.Settled
	}
	s.out.RecordLastFailure(podstate.Failure(pod, s.in.Timestamp))
	s.out.RecordFailure(v2alpha1.TaskTypeCoordinator, pod)
	problems.New(s.out, s.in).Finish(v2alpha1.JobFailed, fmt.Sprintf("coordinator %s has failed", pod.Name))
	return state.Settled
}

// endOf returns how a coordinator has ended; nil has not. One that never restarts finishes with its main
// container, even if a sidecar still runs or fails later. A disrupted one is recreated.
func (s *Stage) endOf(coordinator *corev1.Pod) End {
	switch {
	case coordinator == nil:
		return End{}
	case coordinator.Status.Phase == corev1.PodSucceeded:
		return End{IsOver: true, HasSucceeded: true}
	case podstate.Disrupted(coordinator):
		return End{}
	}
	end := End{IsOver: coordinator.Status.Phase == corev1.PodFailed}
	end.HasGrown = rightsize.WasOutOfMemory(coordinator) && s.sizes.HasGrown(&rightsize.Replica{ReplicaID: workload.CoordinatorID(s.in.Job), Pod: coordinator})
	if main := podstate.MainTermination(coordinator); main != nil && coordinator.Spec.RestartPolicy == corev1.RestartPolicyNever {
		end.IsOver, end.HasSucceeded = true, main.ExitCode == 0 && !podstate.IsKilledByProbe(coordinator)
	}
	return end
}
