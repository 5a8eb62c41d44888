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
func (o *outcome) Summarize() {
	status := o.out.Status()
	o.out.RecordPodCounts(o.counts())
	o.out.ResetBackoff(o.isAllReady(), o.isBackingOff)
	o.endResize()
	if o.facts.isExcessive() && status.Phase != "" {
		// The replicas that its pods belong to are unknown.
		return
	}
	if state.IsFinished(status) || state.IsSuspended(o.in.Job) || state.IsHeld(o.in.Job) || status.Restarts > o.in.Job.Status.Restarts || status.Reschedules > o.in.Job.Status.Reschedules {
		return
	}
	o.summarizePhase()
}

// summarizePhase keeps a Running job Running while it has pods, because a resize or a replacement
// restarts no other replica. A job is Starting once all its pods are created.
func (o *outcome) summarizePhase() {
	status := o.out.Status()
	existing, ready := 0, 0
	for i := range o.ranked.assignment.Replicas {
		replica := &o.ranked.assignment.Replicas[i]
		pod := o.in.PodNamed[replica.Pod]
		switch {
		case o.ranked.completed.Has(replica.Rank):
			existing++
			ready++
		case pod != nil:
			existing++
			if podstate.Ready(pod) {
				ready++
			}
		}
	}
	switch wanted := len(o.ranked.assignment.Replicas); {
	case existing == 0:
		// Between two attempts or placements the job has no pods for a moment.
		if state.IsUnplaced(o.in.Job) || status.Phase != v2alpha1.JobRestarting && status.Phase != v2alpha1.JobRescheduling {
			o.out.SetPhase(v2alpha1.JobPending, o.pendingMessage())
		}
	case ready == wanted:
		message := state.All(wanted, "replica") + english.PluralWord(wanted, " is", " are") + " ready"
		o.out.SetPhase(v2alpha1.JobRunning, message)
		o.out.UpdateMessage(string(v2alpha1.JobRunning), message)
	case status.Phase == v2alpha1.JobRunning:
		// readyReplicas has the number of ready replicas, which changes often.
		o.out.UpdateMessage(string(v2alpha1.JobRunning), notReady(wanted))
	case status.Phase == v2alpha1.JobStarting || existing == wanted:
		o.recordPending()
		o.out.SetPhase(v2alpha1.JobStarting, english.PluralWord(wanted, "the pod is created, 1 replica is desired", "pods are created, "+english.Plural(wanted, "replica", "")+" are desired"))
	case status.Phase == "":
		o.out.SetPhase(v2alpha1.JobPending, o.pendingMessage())
	}
}

// Desired returns the names of the desired pods whose ranks have not succeeded; false if no ranks are
// ranked.
func (o *outcome) Desired() (pods map[string]bool, isKnown bool) {
	pods = map[string]bool{}
	for i := range o.ranked.assignment.Replicas {
		if replica := &o.ranked.assignment.Replicas[i]; !o.ranked.completed.Has(replica.Rank) {
			pods[replica.Pod] = true
		}
	}
	return pods, len(o.ranked.assignment.Replicas) > 0 || o.facts.counts.Total == 0
}

func notReady(replicas int) string {
	return english.PluralWord(replicas, "the replica is not ready", "not "+state.All(replicas, "replica")+" are ready")
}

// recordPending records that a new job was Pending, even if its pods exist already.
func (o *outcome) recordPending() {
	if o.out.Status().Phase == "" {
		o.out.RecordCondition(string(v2alpha1.JobPending), corev1.ConditionTrue, state.ReasonOf(v2alpha1.JobPending, false), o.pendingMessage())
	}
}

func (o *outcome) pendingMessage() string {
	if state.IsUnplaced(o.in.Job) {
		return "the job waits for the allocator to place it"
	}
	if o.gang.LacksScheduler() {
		return "the job waits for a gang scheduler"
	}
	if o.out.Decision.Waits {
		return "the job waits until objects of an earlier job of its name are deleted"
	}
	if o.out.Status().Replicas == 0 {
		return "no replicas are desired: scale the job, or set replicas of a task"
	}
	return "not all pods are created yet"
}

// counts counts the pods, by task and for the scale subresource.
func (o *outcome) counts() state.PodCounts {
	counts := o.out.PodCounts().Emptied()
	for _, pod := range o.in.Pods {
		counts.Add(pod.Labels[names.LabelTaskName], pod, o.out.IsReady(pod))
	}
	elastic := names.ElasticTask(&o.in.Job.Spec)
	if elastic < 0 {
		return counts
	}
	task := names.TaskName(&o.in.Job.Spec.Tasks[elastic])
	for _, pod := range o.in.Pods {
		if pod.Labels[names.LabelTaskName] == task && podstate.Active(pod) {
			counts.Elastic++
		}
	}
	selector := names.WorkerJobLabels(o.in.Job.Name)
	selector[names.LabelTaskName] = task
	counts.Selector = labels.Set(selector).String()
	return counts
}
