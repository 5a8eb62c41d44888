// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"slices"

	"opendilab.org/di-orchestrator/internal/lifecycle/state"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
)

// A job that queues by Kueue does so through its pods. Those of one start of a
// worker-led job are one group, which is admitted, evicted and finished as a
// whole. Kueue takes neither another size for a group nor a finished one back, so
// what starts again is a group of its own, of which attempt and reschedule tell. A
// pod that is made again joins the group while others of it live; else it queues
// by itself. What was started without a queue goes on without.

// groupOf returns the metadata of a pod of a worker-led job, and whether the pod is in a
// group that the operator created.
func (in *Input) groupOf(pod *corev1.Pod) (queueing.Marks, bool) {
	marks := queueing.On(pod)
	ours := marks.In(in.Job, podstate.Attempt(pod), podstate.Reschedule(pod), marks.Size)
	return marks, marks.Size > 1 && marks == ours && marks.Group != ""
}

// isGrouped reports whether the pods of a status's attempt are a group that Kueue admits
// as a whole.
func (in *Input) isGrouped(status *v2alpha1.DIJobStatus) bool {
	return slices.ContainsFunc(in.Pods, func(pod *corev1.Pod) bool {
		_, grouped := in.groupOf(pod)
		return grouped && !state.IsStale(pod, status)
	})
}

// isInLine reports whether a pod keeps its group unfinished.
func isInLine(pod *corev1.Pod) bool {
	return !podstate.Finished(pod) && !queueing.IsHeld(pod) && !queueing.IsAbandoned(pod)
}

// whyRequeued describes why all replicas must queue again, "" if they need not.
func (p *Plan) whyRequeued() string {
	if p.Job.Spec.Preemptible {
		return ""
	}
	for _, pod := range p.Current() {
		marks, grouped := p.groupOf(pod)
		message, evicted := queueing.Eviction(pod)
		switch {
		case grouped && evicted:
			return "Kueue evicted the job, which queues again: " + message
		case grouped && marks.Size != int(p.counts.Total):
			// It was resized while it was suspended, and some of its pods are left.
			return fmt.Sprintf("the job has %d replicas, but queues for %d", p.counts.Total, marks.Size)
		}
	}
	switch {
	case p.Queued().Queue == "" || p.counts.Total < 2 || !p.recorded.IsEmpty():
		return ""
	case conditions.IsTrue(&p.Job.Status, v2alpha1.ConditionSuspended) && len(p.Pods) == 0:
		return "the job was resumed and queues again"
	case p.isDeserted():
		return "all replicas are gone, and the job queues again"
	}
	return ""
}

// isDeserted reports whether disruptions ended all pods of a job that had pods, so that
// its group has finished.
func (p *Plan) isDeserted() bool {
	if phase := p.Job.Status.Phase; phase != v2alpha1.JobStarting && phase != v2alpha1.JobRunning {
		return false
	}
	return !slices.ContainsFunc(p.Current(), func(pod *corev1.Pod) bool {
		return isInLine(pod) || pod.Status.Phase == corev1.PodSucceeded || state.HasFailed(p.Job, pod)
	})
}

// marks returns Kueue's metadata for pods of a worker-led job that are created now.
func (p *Plan) marks() queueing.Marks {
	if p.marked == nil {
		marks := p.findMarks()
		p.marked = &marks
	}
	return *p.marked
}

func (p *Plan) findMarks() queueing.Marks {
	members := p.Current()
	isFresh := len(members) == 0 && p.completed().IsEmpty()
	if isFresh {
		return p.Queued().In(p.Job, p.assignment.Attempt, p.assignment.Reschedule, len(p.assignment.Replicas))
	}
	var former queueing.Marks
	for _, pod := range members {
		marks, grouped := p.groupOf(pod)
		if grouped && isInLine(pod) {
			return marks
		}
		if grouped {
			former = marks
		}
	}
	isUnqueued := func(pod *corev1.Pod) bool { return queueing.On(pod).Queue == "" }
	switch {
	case former.Queue != "":
		return former.Alone()
	case slices.ContainsFunc(members, isUnqueued):
		return queueing.Marks{}
	}
	return p.Queued()
}

// mayQueue reports whether the queue of a worker-led job allows to create its pods: the
// allocator and Kueue cannot both decide when and where it runs.
func (p *Plan) mayQueue() bool {
	if p.Job.Spec.Preemptible && p.Queued().Queue != "" && len(p.Current()) == 0 {
		p.Invalidate(fmt.Sprintf(
			"queue %s is Kueue's, and a preemptible job is the allocator's to place: it can have one of the two", p.Queued().Queue))
		return false
	}
	return true
}

// releaseHeld removes Kueue's finalizer from pods that are otherwise deleted: the pods
// that replace them have their names, and Kueue waits for these. An eviction is recorded
// first.
func (p *Plan) releaseHeld() state.Result {
	for _, pod := range p.Pods {
		_, evicted := queueing.Eviction(pod)
		isRecorded := podstate.PlausibleCount(podstate.Attempt(pod), p.Job.Status.Restarts) < p.Job.Status.Restarts ||
			podstate.PlausibleCount(podstate.Reschedule(pod), p.Job.Status.Reschedules) < p.Job.Status.Reschedules
		if queueing.IsHeld(pod) && (!evicted || isRecorded || !p.IsStale(pod)) {
			p.Decision.ReleasePods = append(p.Decision.ReleasePods, queueing.Release(pod))
		}
	}
	return state.Continue
}
