// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// Summarize writes the counts of a worker-led job and, unless a rule has set it,
// the phase.
func (a *assigned) Summarize() {
	status := a.out.Status()
	a.out.RecordPodCounts(a.counts())
	a.out.ResetBackoff(a.isAllReady)
	a.endResize()
	if a.facts.isExcessive() && status.Phase != "" {
		// The replicas that its pods belong to are unknown.
		return
	}
	if state.IsFinished(status) || state.IsSuspended(a.in.Job) || state.IsHeld(a.in.Job) || status.Restarts > a.in.Job.Status.Restarts || status.Reschedules > a.in.Job.Status.Reschedules {
		return
	}
	a.summarizePhase()
}

// summarizePhase keeps a Running job Running while it has pods, because a resize or a replacement
// restarts no other replica. A job is Starting once all its pods are created.
func (a *assigned) summarizePhase() {
	status := a.out.Status()
	existing, ready := 0, 0
	for i := range a.assignment.Replicas {
		replica := &a.assignment.Replicas[i]
		pod := a.in.PodNamed[replica.Pod]
		switch {
		case a.completed().Has(replica.Rank):
			existing++
			ready++
		case pod != nil:
			existing++
			if podstate.Ready(pod) {
				ready++
			}
		}
	}
	switch wanted := len(a.assignment.Replicas); {
	case existing == 0:
		// Between two attempts or placements the job has no pods for a moment.
		if state.IsUnplaced(a.in.Job) || status.Phase != v2alpha1.JobRestarting && status.Phase != v2alpha1.JobRescheduling {
			a.out.SetPhase(v2alpha1.JobPending, a.pendingMessage())
		}
	case ready == wanted:
		message := state.All(wanted, "replica") + english.PluralWord(wanted, " is", " are") + " ready"
		a.out.SetPhase(v2alpha1.JobRunning, message)
		a.out.UpdateMessage(string(v2alpha1.JobRunning), message)
	case status.Phase == v2alpha1.JobRunning:
		// readyReplicas has the number of ready replicas, which changes often.
		a.out.UpdateMessage(string(v2alpha1.JobRunning), notReady(wanted))
	case status.Phase == v2alpha1.JobStarting || existing == wanted:
		a.recordPending()
		a.out.SetPhase(v2alpha1.JobStarting, english.PluralWord(wanted, "the pod is created, 1 replica is desired", "pods are created, "+english.Plural(wanted, "replica", "")+" are desired"))
	case status.Phase == "":
		a.out.SetPhase(v2alpha1.JobPending, a.pendingMessage())
	}
}

// Desired returns the names of the desired pods whose ranks have not succeeded; false if no ranks are
// assigned.
func (a *assigned) Desired() (pods map[string]bool, isKnown bool) {
	pods = map[string]bool{}
	for i := range a.assignment.Replicas {
		if replica := &a.assignment.Replicas[i]; !a.completed().Has(replica.Rank) {
			pods[replica.Pod] = true
		}
	}
	return pods, len(a.assignment.Replicas) > 0 || a.facts.counts.Total == 0
}

func notReady(replicas int) string {
	return english.PluralWord(replicas, "the replica is not ready", "not "+state.All(replicas, "replica")+" are ready")
}

// recordPending records that a new job was Pending, even if its pods exist already.
func (a *assigned) recordPending() {
	if a.out.Status().Phase == "" {
		a.out.RecordCondition(string(v2alpha1.JobPending), corev1.ConditionTrue, state.ReasonOf(v2alpha1.JobPending, false), a.pendingMessage())
	}
}

func (a *assigned) pendingMessage() string {
	if state.IsUnplaced(a.in.Job) {
		return "the job waits for the allocator to place it"
	}
	if a.gang.LacksScheduler() {
		return "the job waits for a gang scheduler"
	}
	if a.out.Decision.Waits {
		return "the job waits until objects of an earlier job of its name are deleted"
	}
	if a.out.Status().Replicas == 0 {
		return "no replicas are desired: scale the job, or set replicas of a task"
	}
	return "not all pods are created yet"
}

// counts counts the pods, by task and for the scale subresource.
func (a *assigned) counts() state.PodCounts {
	counts := a.out.PodCounts().Emptied()
	for _, pod := range a.in.Pods {
		counts.Add(pod.Labels[names.LabelTaskName], pod, a.out.IsReady(pod))
	}
	elastic := names.ElasticTask(&a.in.Job.Spec)
	if elastic < 0 {
		return counts
	}
	task := names.TaskName(&a.in.Job.Spec.Tasks[elastic])
	for _, pod := range a.in.Pods {
		if pod.Labels[names.LabelTaskName] == task && podstate.Active(pod) {
			counts.Elastic++
		}
	}
	selector := names.WorkerJobLabels(a.in.Job.Name)
	selector[names.LabelTaskName] = task
	counts.Selector = labels.Set(selector).String()
	return counts
}
