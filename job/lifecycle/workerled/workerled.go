// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workerled decides about worker-led jobs, in stages. Each stage is a package that takes what the stages
// before it found:
//
//	observed  what is there, and what the job desires
//	counts    how many replicas are desired, and which pods are stale
//	ranked    which replica has which rank, and which ranks have succeeded
//	failures  how the attempt ends, and which pods were disrupted
//	excess    which pods are deleted and resized
//	staffing  which pods are created
//	summary   the phase, the numbers of pods and the conditions
package workerled

import (
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/counts"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/excess"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/failures"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/ranked"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/staffing"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/summary"
)

// Job decides about a worker-led job.
type Job struct {
	out   *state.Plan
	facts *observed.Facts
}

// New returns a worker-led job, about which Decide decides.
func New(out *state.Plan, in *state.Input) *Job {
	job := observed.Observe(in)
	out.Invalidate(job.TooMany...)
	return &Job{out: out, facts: job}
}

// Decide applies the rules of a worker-led job, stage by stage, until one settles the decision.
func (j *Job) Decide(apply state.Apply) state.Outcome {
	found := j.decide(apply)
	return summary.New(j.out, j.facts, found)
}

func (j *Job) decide(apply state.Apply) summary.Found {
	found := summary.Found{Handshake: handshake.New(j.out, j.facts.In, int(j.facts.Counts.Total))}
	if apply(counts.New(j.out, j.facts).Rules()) == state.Settled || j.facts.IsExcessive() {
		return found
	}
	found.Ranked = ranked.Assign(j.out, j.facts)
	failing := failures.New(j.out, j.facts, found.Ranked, found.Handshake)
	if apply(failing.Rules()) == state.Settled {
		return found
	}
	found.Disruptions = failing.BackOffDisrupted()
	removing := excess.New(j.out, j.facts, found.Ranked, found.Handshake, found.Disruptions)
	apply(removing.Rules())
	staffing := staffing.New(j.out, j.facts, found.Ranked, found.Handshake, removing.Removals())
	if apply(staffing.Rules()) == state.Continue {
		found.Gang = staffing.Staff()
	}
	return found
}
