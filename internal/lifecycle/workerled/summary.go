// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// Summarize writes the counts of a worker-led job and, unless a rule has set it,
// the phase.
func (p *Plan) Summarize() {
	status := p.out.Status()
	p.out.BeginCounting()
	for _, pod := range p.in.Pods {
		p.out.Count(pod.Labels[names.LabelTaskName], pod)
	}
	p.summarizeElastic()
	p.out.ResetBackoff(p.isAllReady)
	p.endResize()
	if p.facts.isExcessive() && status.Phase != "" {
		// The replicas that its pods belong to are unknown.
		return
	}
	if state.IsFinished(status) || state.IsSuspended(p.in.Job) || state.IsHeld(p.in.Job) || status.Restarts > p.in.Job.Status.Restarts || status.Reschedules > p.in.Job.Status.Reschedules {
		return
	}
	p.summarizePhase()
}

// summarizePhase keeps a Running job Running while it has pods, because a resize or a replacement
// restarts no other replica. A job is Starting once all its pods are created.
func (p *Plan) summarizePhase() {
	status := p.out.Status()
	existing, ready := 0, 0
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.in.PodNamed[replica.Pod]
		switch {
		case p.completed().Has(replica.Rank):
			existing++
			ready++
		case pod != nil:
			existing++
			if podstate.Ready(pod) {
				ready++
			}
		}
	}
	switch wanted := len(p.assignment.Replicas); {
	case existing == 0:
		// Between two attempts or placements the job has no pods for a moment.
		if isUnplaced(p.in.Job) || status.Phase != v2alpha1.JobRestarting && status.Phase != v2alpha1.JobRescheduling {
			p.out.SetPhase(v2alpha1.JobPending, p.pendingMessage())
		}
	case ready == wanted:
		message := all(wanted, "replica") + english.PluralWord(wanted, " is", " are") + " ready"
		p.out.SetPhase(v2alpha1.JobRunning, message)
		p.out.UpdateMessage(string(v2alpha1.JobRunning), message)
	case status.Phase == v2alpha1.JobRunning:
		// readyReplicas has the number of ready replicas, which changes often.
		p.out.UpdateMessage(string(v2alpha1.JobRunning), notReady(wanted))
	case status.Phase == v2alpha1.JobStarting || existing == wanted:
		p.recordPending()
		p.out.SetPhase(v2alpha1.JobStarting, english.PluralWord(wanted, "the pod is created, 1 replica is desired", "pods are created, "+english.Plural(wanted, "replica", "")+" are desired"))
	case status.Phase == "":
		p.out.SetPhase(v2alpha1.JobPending, p.pendingMessage())
	}
}

// Desired returns the names of the desired pods whose ranks have not succeeded; false if no ranks are
// assigned.
func (p *Plan) Desired() (pods map[string]bool, isKnown bool) {
	pods = map[string]bool{}
	for i := range p.assignment.Replicas {
		if replica := &p.assignment.Replicas[i]; !p.completed().Has(replica.Rank) {
			pods[replica.Pod] = true
		}
	}
	return pods, len(p.assignment.Replicas) > 0 || p.facts.counts.Total == 0
}

// all names a number of things that are all of their kind, such as the replica, or all 3 replicas.
func all(count int, kind string) string {
	return english.PluralWord(count, "the "+kind, "all "+english.Plural(count, kind, ""))
}

func notReady(replicas int) string {
	return english.PluralWord(replicas, "the replica is not ready", "not "+all(replicas, "replica")+" are ready")
}

// recordPending records that a new job was Pending, even if its pods exist already.
func (p *Plan) recordPending() {
	status := p.out.Status()
	if status.Phase == "" {
		conditions.Set(status, string(v2alpha1.JobPending), corev1.ConditionTrue, state.ReasonOf(v2alpha1.JobPending, false), p.pendingMessage(), p.in.Now)
	}
}

func (p *Plan) pendingMessage() string {
	if isUnplaced(p.in.Job) {
		return "the job waits for the allocator to place it"
	}
	if p.gang.missing != "" {
		return "the job waits for a gang scheduler"
	}
	if p.out.Decision.Waits {
		return "the job waits until objects of an earlier job of its name are deleted"
	}
	if p.out.Status().Replicas == 0 {
		return "no replicas are desired: scale the job, or set replicas of a task"
	}
	return "not all pods are created yet"
}

// summarizeElastic writes the fields that the scale subresource reads.
func (p *Plan) summarizeElastic() {
	status := p.out.Status()
	status.ElasticReplicas, status.Selector = 0, ""
	elastic := names.ElasticTask(&p.in.Job.Spec)
	if elastic < 0 {
		return
	}
	task := names.TaskName(&p.in.Job.Spec.Tasks[elastic])
	for _, pod := range p.in.Pods {
		if pod.Labels[names.LabelTaskName] == task && podstate.Active(pod) {
			status.ElasticReplicas++
		}
	}
	selector := names.WorkerJobLabels(p.in.Job.Name)
	selector[names.LabelTaskName] = task
	status.Selector = labels.Set(selector).String()
}
