// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package summary summarizes a coordinator-led job: its phase, the numbers of its pods, and the progress of its plan.
package summary

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/losses"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
)

// Outcome is the last stage. It implements state.Outcome.
type Outcome struct {
	out       *state.Plan
	in        *state.Input
	facts     *observed.Facts
	sizes     *rightsize.Rules
	execution scaling.Execution
	handshake *handshake.Handshake
	// isBackingOff is set while disrupted pods wait to be replaced.
	isBackingOff bool
}

// Found is what the stages before found.
type Found struct {
	Handshake *handshake.Handshake
	// Losses are none if a rule settled the decision before they were searched for.
	Losses losses.Losses
}

// New returns the last stage.
func New(out *state.Plan, job *observed.Facts, found Found) *Outcome {
	return &Outcome{
		out: out, in: job.In, facts: job, sizes: rightsize.New(out, job.In), execution: scaling.NewExecution(out, job.In),
		handshake: found.Handshake, isBackingOff: found.Losses.IsBackingOff,
	}
}

// Report implements state.Outcome. It records the end of a ScalePlan, and sets the condition for the queue.
func (o *Outcome) Report() {
	o.execution.Report(o.progressOfPlan)
	upkeep.New(o.out, o.in).ReportQueue()
}

// Desired returns the names of the desired pods, with those of units; false without a Membership.
func (o *Outcome) Desired() (pods map[string]bool, isKnown bool) {
	return o.facts.Wanted, o.facts.IsKnown
}

// Summarize writes the counts of a coordinator-led job and, unless a rule has
// set it, the phase.
func (o *Outcome) Summarize() {
	counts, rules := o.out.PodCounts().Emptied(), problems.New(o.out, o.in)
	for _, pod := range o.in.Pods {
		counts.Add(taskOfRole(o.in.Job, names.RoleOf(pod)), pod, rules.IsReady(pod))
	}
	o.out.RecordPodCounts(counts)
	coordinator := o.facts.Coordinator
	isRunning := coordinator != nil && coordinator.Status.Phase == corev1.PodRunning
	disruptions.New(o.out, o.in).ResetBackoff(isRunning, o.isBackingOff)
	if state.IsFinished(o.out.Status()) || state.IsSuspended(o.in.Job) || state.IsHeld(o.in.Job) {
		return
	}
	if o.facts.IsKnown {
		counts.Replicas = int32(len(o.facts.Wanted))
	} else if counts.Replicas == 0 {
		// The coordinator is desired before it can request others.
		counts.Replicas = 1
	}
	o.out.RecordPodCounts(counts)
	o.summarizePhase()
}

// summarizePhase sets the phase, which is that of the coordinator.
func (o *Outcome) summarizePhase() {
	status, coordinator := o.out.Status(), o.facts.Coordinator
	switch {
	case coordinator != nil && podstate.Terminating(coordinator):
		o.setWaiting(v2alpha1.JobStarting, fmt.Sprintf("coordinator %s is terminating and is recreated once it is gone", coordinator.Name))
	case coordinator != nil && coordinator.Status.Phase == corev1.PodRunning:
		o.out.SetPhase(v2alpha1.JobRunning, fmt.Sprintf("coordinator %s runs", coordinator.Name))
	case coordinator != nil:
		o.setWaiting(v2alpha1.JobStarting, fmt.Sprintf("coordinator %s is created", coordinator.Name))
	case status.Phase == "" || status.Phase == v2alpha1.JobPending:
		o.setWaiting(v2alpha1.JobPending, o.whyMissing("is not created yet"))
	default:
		o.setWaiting(v2alpha1.JobStarting, o.whyMissing("is gone and is recreated"))
	}
}

// whyMissing describes why there is no coordinator.
func (o *Outcome) whyMissing(otherwise string) string {
	switch {
	case o.out.Decision.HeldBack:
		return "the coordinator is missing: the API server refused it, and the operator retries"
	case o.out.Decision.Waits:
		return "the coordinator waits until objects of an earlier job of its name are deleted"
	}
	return "the coordinator " + otherwise
}

// setWaiting sets the phase of a coordinator-led job whose coordinator does not run, and keeps its
// message up to date.
func (o *Outcome) setWaiting(phase v2alpha1.Phase, message string) {
	o.out.SetPhase(phase, message)
	o.out.UpdateMessage(state.ConditionOf(phase, true), message)
}

// taskOfRole returns the key by which pods of a role are counted: the task whose template they use.
// Aggregators have a key of their own.
func taskOfRole(job *v2alpha1.DIJob, role names.ReplicaType) string {
	if role == names.ReplicaTypeAggregator {
		return v2alpha1.AggregatorTaskStatus
	}
	kind := v2alpha1.TaskType(role)
	if role == names.ReplicaTypeDDPLearner {
		kind = v2alpha1.TaskTypeLearner
	}
	return names.NameOfType(&job.Spec, kind)
}
