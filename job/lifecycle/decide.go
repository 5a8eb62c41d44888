// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled"
	"opendilab.org/di-orchestrator/job/lifecycle/endings"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled"
)

// Observed is the state of a job and its objects at one moment.
type Observed = state.Observed

// Decision is what to do for a job.
type Decision = state.Decision

// Event is an event about a job.
type Event = state.Event

// summaryName names the step that summarizes the pods, after the rules.
const summaryName = "the phase summarizes the pods"

// Decide returns what to do for a job.
func Decide(observed Observed) Decision {
	decision, _ := newReconcile(observed).decide()
	delayPhases(&decision, &observed)
	return decision
}

// reconcile is the input and the plan of one reconcile.
type reconcile struct {
	in   *state.Input
	plan *state.Plan
	job  lifecycle
}

// lifecycle decides what one way of running a job requires.
type lifecycle interface {
	// Decide applies rules in stages, each in order until one settles the decision. A stage gets what the one
	// before it found.
	Decide(apply state.Apply) state.Outcome
}

func newReconcile(observed Observed) *reconcile {
	in := state.NewInput(observed)
	r := &reconcile{in: in, plan: state.NewPlan(in)}
	if state.IsCoordinatorLed(in.Job) {
		r.job = coordinatorled.New(r.plan, in)
	} else {
		r.job = workerled.New(r.plan, in)
	}
	return r
}

// decide also names the step that changed the job's phase, "" if none did.
func (r *reconcile) decide() (decision Decision, cause string) {
	p := r.plan
	if state.IsLeftAlone(r.in.Job) && !state.IsHeld(r.in.Job) {
		return p.Decision, ""
	}
	if state.WaitsForHistory(r.in.Job) {
		endings.New(p, r.in).AwaitHistory()
		upkeep.New(p, r.in).DeleteByForce()
		return p.Decision, ""
	}
	outcome := r.job.Decide(func(rules []state.Rule) state.Result { return r.apply(rules, &cause) })
	if p.Decision.DeleteJob || p.Decision.IsAdoption() {
		return p.Decision, ""
	}
	before := p.Status().Phase
	outcome.Summarize()
	if p.Status().Phase != before {
		cause = summaryName
	}
	problems.New(p, r.in).ReportProblems()
	upkeep.New(p, r.in).ReportAltered()
	upkeep.New(p, r.in).DeleteByForce()
	outcome.Report()
	upkeep.New(p, r.in).KeepBudget(outcome)
	upkeep.New(p, r.in).DropKeys()
	p.ReportInvalid()
	p.RecordGeneration()
	return p.Decision, cause
}

// apply applies rules in order, and names the last one that changed the phase. It reports whether one of them
// settled the decision.
func (r *reconcile) apply(rules []state.Rule, cause *string) state.Result {
	for _, rule := range rules {
		before := r.plan.Status().Phase
		result := rule.Apply()
		if r.plan.Status().Phase != before {
			*cause = rule.Name
		}
		if result == state.Settled {
			return state.Settled
		}
	}
	return state.Continue
}
