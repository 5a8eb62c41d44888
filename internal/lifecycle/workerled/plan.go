// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workerled decides about worker-led jobs, in stages. Each stage is a package that takes what the stages
// before it found:
//
//	observed  what is there, and what the job desires
//	counts    how many replicas are desired, and which pods are stale
//	ranked    which replica has which rank, and which ranks have succeeded
//	failures  how the attempt ends, and which pods were disrupted
//	staffing  which pods are deleted, resized and created
//	summary   the phase, the numbers of pods and the conditions
package workerled

import (
	"opendilab.org/di-orchestrator/internal/lifecycle/handshake"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
)

// Job decides about a worker-led job.
type Job struct {
	out   *state.Plan
	facts *facts
}

// New returns a worker-led job, about which Decide decides.
func New(out *state.Plan, in *state.Input) *Job {
	job := observe(in)
	out.Invalidate(job.tooMany...)
	return &Job{out: out, facts: job}
}

// Decide applies the rules of a worker-led job, stage by stage, until one settles the decision.
func (j *Job) Decide(apply func([]state.Rule) state.Result) state.Outcome {
	found := j.decide(apply)
	return newOutcome(j.out, j.facts, found)
}

func (j *Job) decide(apply func([]state.Rule) state.Result) found {
	found := found{handshake: handshake.New(j.out, j.facts.in, j.facts.change())}
	if apply(newCounting(j.out, j.facts).rules()) == state.Settled || j.facts.isExcessive() {
		return found
	}
	found.ranked = assign(j.out, j.facts)
	failing := newFailing(j.out, j.facts, found.ranked, found.handshake)
	if apply(failing.rules()) == state.Settled {
		return found
	}
	found.disruptions = failing.backOffDisrupted()
	staffing := newStaffing(j.out, j.facts, found.ranked, found.handshake, found.disruptions)
	if apply(staffing.rules()) == state.Continue {
		found.gang = staffing.staff()
	}
	return found
}
