// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package coordinator keeps the coordinator of a coordinator-led job.
package coordinator

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/creation"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/failures"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Stage decides about the coordinator of a job that does not end.
type Stage struct {
	out   *state.Plan
	in    *state.Input
	facts *observed.Facts
	end   failures.End
}

// New returns the rules of the coordinator of a job that does not end with it.
func New(out *state.Plan, job *observed.Facts, end failures.End) *Stage {
	return &Stage{out: out, in: job.In, facts: job, end: end}
}

// Rules are the rules of the coordinator.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{{Name: "the coordinator is created", Apply: s.ensure}}
}

func (s *Stage) ensure() state.Result {
	pod, creating := s.facts.Coordinator, creation.New(s.out, s.in)
	switch {
	case pod == nil:
		built, err := s.in.Builder.Coordinator()
		creating.SetRank(built, 0)
		if err == nil && s.out.IsPodTaken(built.Name) {
			return state.Continue
		}
		if err != nil || s.out.MayCreate(string(names.ReplicaTypeCoordinator)) {
			// It decides how many members there will be, so it queues by itself.
			creating.Create(built, err, s.in.Queued())
		}
		if err != nil {
			return state.Continue
		}
		pod = built
	case (s.end.IsOver || podstate.Finished(pod)) && !podstate.Terminating(pod):
		// It was disrupted or out of memory: otherwise the job would have finished with it.
		if s.end.HasGrown || s.mayReplace(pod) {
			s.out.DeletePod(pod)
		}
	}
	creating.EnsureService(pod)
	return state.Continue
}

// mayReplace reports whether a disrupted coordinator may be recreated now. If so, it
// reports the disruption. A coordinator that ran for as long as the backoff does not wait for
// disruptions of its replicas.
func (s *Stage) mayReplace(pod *corev1.Pod) bool {
	rules, found := disruptions.New(s.out, s.in), []disruptions.DisruptedPod{{Pod: pod, Task: v2alpha1.TaskTypeCoordinator}}
	recorded := s.out.Condition(v2alpha1.ConditionReplicasDisrupted)
	if recorded != nil && s.in.Now.Sub(pod.CreationTimestamp.Time) >= disruptions.BackoffAfter(recorded) {
		rules.ReportDisruption(found)
		return true
	}
	return rules.MayRecreate(found)
}
