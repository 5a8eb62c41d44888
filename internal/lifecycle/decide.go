// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"opendilab.org/di-orchestrator/internal/lifecycle/coordinatorled"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/lifecycle/workerled"
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
	// Rules apply in order until one settles the decision.
	Rules() []state.Rule
	// Summarize writes the counts of the pods and, unless a rule has set it, the phase.
	Summarize()
	// Report sets the conditions that not every job has.
	Report()
	// Desired returns the names of the pods that the job desires and that have not completed; false
	// if they are unknown.
	Desired() (pods map[string]bool, isKnown bool)
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
	cause = r.apply()
	if p.Decision.DeleteJob || p.Decision.IsAdoption() {
		return p.Decision, ""
	}
	before := p.Status().Phase
	r.job.Summarize()
	if p.Status().Phase != before {
		cause = summaryName
	}
	p.ReportProblems()
	p.ReportAltered()
	p.DeleteByForce()
	r.job.Report()
	p.KeepBudget(r.job.Desired)
	p.ReportInvalid()
	p.Decision.Status.ObservedGeneration = r.in.Job.Generation
	return p.Decision, cause
}

// apply applies the rules in order and names the last one that changed the phase.
func (r *reconcile) apply() (cause string) {
	for _, rule := range r.job.Rules() {
		before := r.plan.Status().Phase
		result := rule.Apply()
		if r.plan.Status().Phase != before {
			cause = rule.Name
		}
		if result == state.Settled {
			break
		}
	}
	return cause
}
