// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requested keeps the Membership of a coordinator-led job, in which its coordinator requests members. It requests
// those of the newest ScalePlan there.
package requested

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// Stage decides which members are requested.
type Stage struct {
	out   *state.Plan
	in    *state.Input
	facts *observed.Facts
	// execution is that of the job's ScalePlan.
	execution scaling.Execution
}

// New returns the rules of the members that are requested.
func New(out *state.Plan, job *observed.Facts) *Stage {
	return &Stage{out: out, in: job.In, facts: job, execution: scaling.NewExecution(out, job.In)}
}

// Rules are the rules of the members that are requested, in order.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "the Membership is created before the coordinator", Apply: s.ensureMembership},
		{Name: "the newest ScalePlan is taken", Apply: s.takePlan},
		{Name: "the members of a ScalePlan are requested", Apply: s.editMembers},
	}
}

func (s *Stage) ensureMembership() state.Result {
	switch stored := s.in.Membership; {
	case stored == nil && !s.out.MayCreate(state.KindMembership):
		return state.Settled
	case stored == nil:
		s.out.Decision.CreateMembership = s.newMembership()
	case !stored.DeletionTimestamp.IsZero():
		return state.Settled
	case stored.Spec.JobUID != s.in.Job.UID:
		s.out.Decision.DeleteMembership = true
		return state.Settled
	case !metav1.IsControlledBy(stored, s.in.Job):
		// Others removed the owner reference, and the list would outlive the job.
		restored := stored.DeepCopy()
		restored.OwnerReferences = state.OwnedBy(stored, s.in.Job, s.in.Settings.JobVersion)
		s.out.Decision.UpdateMembership = restored
	}
	return state.Continue
}

// newMembership returns an empty list for a new job. If the object was lost while replicas run, or
// an earlier release created them, it rebuilds the list from the pods.
func (s *Stage) newMembership() *v2alpha1.Membership {
	spec := s.facts.Remains().Spec()
	spec.JobUID = s.in.Job.UID
	return &v2alpha1.Membership{
		ObjectMeta: metav1.ObjectMeta{
			Name:      s.in.Job.Name,
			Namespace: s.in.Job.Namespace,
			OwnerReferences: []metav1.OwnerReference{
				*workload.Owner(s.in.Job, s.in.Settings.JobVersion),
			},
		},
		Spec: spec,
	}
}

// takePlan records the plan that the job executes next, once it has a Membership.
func (s *Stage) takePlan() state.Result {
	if !s.facts.IsKnown {
		return state.Continue
	}
	return s.execution.Take()
}

// editMembers requests the members of a plan from the Membership.
func (s *Stage) editMembers() state.Result {
	if !s.facts.IsKnown {
		return state.Continue
	}
	return s.execution.EditMembers()
}
