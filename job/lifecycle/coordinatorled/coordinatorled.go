// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package coordinatorled decides about coordinator-led jobs, in stages. Each stage is a package that takes what the stages
// before it found:
//
//	observed     what is there, and which pods and members the job desires
//	groups       in which of Kueue's groups the members queue
//	adopted      what an earlier release created
//	failures     whether the job ends, and how its coordinator ended
//	requested    which members are requested in the Membership
//	coordinator  the pod of the coordinator
//	losses       which slots lost their pods, and what is recorded of all
//	excess       which pods are deleted by intent
//	staffing     which pods of members are created
//	summary      the phase, the numbers of pods and the progress of a plan
package coordinatorled

import (
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/adopted"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/coordinator"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/excess"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/failures"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/losses"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/requested"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/staffing"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/summary"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// Job decides about a coordinator-led job.
type Job struct {
	out   *state.Plan
	facts *observed.Facts
}

// New returns a coordinator-led job, about which Decide decides.
func New(out *state.Plan, in *state.Input) *Job {
	job := observed.Observe(in)
	if job.TooMany != "" {
		out.Invalidate(job.TooMany)
	}
	return &Job{out: out, facts: job}
}

// Decide applies the rules of a coordinator-led job, stage by stage, until one settles the decision.
func (j *Job) Decide(apply state.Apply) state.Outcome {
	found := j.decide(apply)
	return summary.New(j.out, j.facts, found)
}

func (j *Job) decide(apply state.Apply) summary.Found {
	found := summary.Found{Handshake: handshake.New(j.out, j.facts.In, j.facts.Members())}
	queue := groups.Find(j.facts)
	if apply(adopted.New(j.out, j.facts, queue).Rules()) == state.Settled {
		return found
	}
	ending := failures.New(j.out, j.facts)
	if apply(ending.Rules()) == state.Settled || apply(requested.New(j.out, j.facts).Rules()) == state.Settled {
		return found
	}
	apply(coordinator.New(j.out, j.facts, ending.End()).Rules())
	found.Losses = losses.Find(j.facts, queue)
	apply(losses.New(j.out, j.facts, found.Losses, queue).Rules())
	removing := excess.New(j.out, j.facts, found.Handshake)
	apply(removing.Rules())
	apply(staffing.New(j.out, j.facts, found.Losses, queue, found.Handshake, removing.Removals()).Rules())
	return found
}
