// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package coordinatorled

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Summarize writes the counts of a coordinator-led job and, unless a rule has
// set it, the phase.
func (p *Plan) Summarize() {
	status := p.out.Status()
	counts := p.out.PodCounts().Emptied()
	for _, pod := range p.in.Pods {
		counts.Add(taskOfRole(p.in.Job, names.RoleOf(pod)), pod, problems.New(p.out, p.in).IsReady(pod))
	}
	p.out.RecordPodCounts(counts)
	disruptions.New(p.out, p.in).ResetBackoff(p.runs(), p.isBackingOff)
	if state.IsFinished(status) || state.IsSuspended(p.in.Job) || state.IsHeld(p.in.Job) {
		return
	}
	if p.isKnown {
		counts.Replicas = int32(len(p.wantedNames(p.slots)))
	} else if counts.Replicas == 0 {
		// The coordinator is desired before it can request others.
		counts.Replicas = 1
	}
	p.out.RecordPodCounts(counts)
	coordinator := p.coordinator()
	switch {
	case coordinator != nil && coordinator.Status.Phase == corev1.PodRunning && !podstate.Terminating(coordinator):
		p.out.SetPhase(v2alpha1.JobRunning, fmt.Sprintf("coordinator %s runs", coordinator.Name))
	case coordinator != nil && podstate.Terminating(coordinator):
		p.setWaiting(v2alpha1.JobStarting, fmt.Sprintf("coordinator %s is terminating and is recreated once it is gone", coordinator.Name))
	case coordinator != nil:
		p.setWaiting(v2alpha1.JobStarting, fmt.Sprintf("coordinator %s is created", coordinator.Name))
	case status.Phase == "" || status.Phase == v2alpha1.JobPending:
		p.setWaiting(v2alpha1.JobPending, p.whyMissing("is not created yet"))
	default:
		p.setWaiting(v2alpha1.JobStarting, p.whyMissing("is gone and is recreated"))
	}
}

// Desired returns the names of the desired pods, with those of units; false without a Membership.
func (p *Plan) Desired() (pods map[string]bool, isKnown bool) {
	return p.wantedNames(p.slots), p.isKnown
}

// whyMissing describes why there is no coordinator.
func (p *Plan) whyMissing(otherwise string) string {
	switch {
	case p.out.Decision.HeldBack:
		return "the coordinator is missing: the API server refused it, and the operator retries"
	case p.out.Decision.Waits:
		return "the coordinator waits until objects of an earlier job of its name are deleted"
	}
	return "the coordinator " + otherwise
}

// setWaiting sets the phase of a coordinator-led job whose coordinator does not run, and keeps its
// message up to date.
func (p *Plan) setWaiting(phase v2alpha1.Phase, message string) {
	p.out.SetPhase(phase, message)
	p.out.UpdateMessage(state.ConditionOf(phase, true), message)
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
