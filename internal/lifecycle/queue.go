// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
)

// A job that queues by Kueue does so through its pods. Those of one start of a
// worker-led job are one group, which is admitted, evicted and finished as a
// whole. Kueue takes neither another size for a group nor a finished one back, so
// what starts again is a group of its own, of which attempt and reschedule tell. A
// pod that is made again joins the group while others of it live; else it queues
// by itself. What was started without a queue goes on without.

// queued returns Kueue's metadata for the job's pods, none if the job has no queue.
func (in *input) queued() queueing.Marks {
	if !in.Kueue || in.isVolcanosQueue() {
		return queueing.Marks{}
	}
	return queueing.Of(in.Job)
}

// isVolcanosQueue reports whether the queue in the spec is a queue of Volcano, which
// schedules the job's gang. The queue in the job's label is one of Kueue.
func (in *input) isVolcanosQueue() bool {
	if in.Job.Labels[queueing.LabelQueue] != "" || !asksForGang(in.Job) {
		return false
	}
	provider, _ := gang.Choose(in.Gangs.Setting, in.Job.Spec.Scheduling.SchedulerName, in.Gangs.Served)
	return provider != nil && provider.Name == gang.Volcano
}

// current returns the pods of this attempt and placement.
func (p *plan) current() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(p.Pods), p.isStale)
}

// groupOf returns the metadata of a pod of a worker-led job, and whether the pod is in a
// group that the operator created.
func (in *input) groupOf(pod *corev1.Pod) (queueing.Marks, bool) {
	marks := queueing.On(pod)
	ours := marks.In(in.Job, attemptOf(pod), rescheduleOf(pod), marks.Size)
	return marks, marks.Size > 1 && marks == ours && marks.Group != ""
}

// isGrouped reports whether the pods of a status's attempt are a group that Kueue admits
// as a whole.
func (in *input) isGrouped(status *v2alpha1.DIJobStatus) bool {
	return slices.ContainsFunc(in.Pods, func(pod *corev1.Pod) bool {
		_, grouped := in.groupOf(pod)
		return grouped && !isStale(pod, status)
	})
}

// isInLine reports whether a pod keeps its group unfinished.
func isInLine(pod *corev1.Pod) bool {
	return !podstate.Finished(pod) && !queueing.IsHeld(pod) && !queueing.IsAbandoned(pod)
}

// whyRequeued describes why all replicas must queue again, "" if they need not.
func (p *plan) whyRequeued() string {
	if p.Job.Spec.Preemptible {
		return ""
	}
	for _, pod := range p.current() {
		marks, grouped := p.groupOf(pod)
		message, evicted := queueing.Eviction(pod)
		switch {
		case grouped && evicted:
			return "Kueue evicted the job, which queues again: " + message
		case grouped && marks.Size != int(p.counts.total):
			// It was resized while it was suspended, and some of its pods are left.
			return fmt.Sprintf("the job has %d replicas, but queues for %d", p.counts.total, marks.Size)
		}
	}
	switch {
	case p.queued().Queue == "" || p.counts.total < 2 || len(p.recorded.ranges) > 0:
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
func (p *plan) isDeserted() bool {
	if phase := p.Job.Status.Phase; phase != v2alpha1.JobStarting && phase != v2alpha1.JobRunning {
		return false
	}
	return !slices.ContainsFunc(p.current(), func(pod *corev1.Pod) bool {
		return isInLine(pod) || pod.Status.Phase == corev1.PodSucceeded || hasFailed(p.Job, pod)
	})
}

// marks returns Kueue's metadata for pods of a worker-led job that are created now.
func (p *plan) marks() queueing.Marks {
	if p.marked == nil {
		marks := p.findMarks()
		p.marked = &marks
	}
	return *p.marked
}

func (p *plan) findMarks() queueing.Marks {
	members := p.current()
	isFresh := len(members) == 0 && len(p.completed().ranges) == 0
	if isFresh {
		return p.queued().In(p.Job, p.assignment.Attempt, p.assignment.Reschedule, len(p.assignment.Replicas))
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
	return p.queued()
}

// mayQueue reports whether the queue of a worker-led job allows to create its pods: the
// allocator and Kueue cannot both decide when and where it runs.
func (p *plan) mayQueue() bool {
	if p.Job.Spec.Preemptible && p.queued().Queue != "" && len(p.current()) == 0 {
		p.invalid = append(p.invalid, fmt.Sprintf(
			"queue %s is Kueue's, and a preemptible job is the allocator's to place: it can have one of the two", p.queued().Queue))
		return false
	}
	return true
}

// releaseHeld removes Kueue's finalizer from pods that are otherwise deleted: the pods
// that replace them have their names, and Kueue waits for these. An eviction is recorded
// first.
func releaseHeld(p *plan) outcome {
	for _, pod := range p.Pods {
		_, evicted := queueing.Eviction(pod)
		isRecorded := believed(attemptOf(pod), p.Job.Status.Restarts) < p.Job.Status.Restarts ||
			believed(rescheduleOf(pod), p.Job.Status.Reschedules) < p.Job.Status.Reschedules
		if queueing.IsHeld(pod) && (!evicted || isRecorded || !p.isStale(pod)) {
			p.decision.ReleasePods = append(p.decision.ReleasePods, queueing.Release(pod))
		}
	}
	return goOn
}

// reportQueue sets the condition for the admission by Kueue.
func (p *plan) reportQueue() {
	const condition = v2alpha1.ConditionAdmitted
	switch {
	case !p.Kueue || IsFinished(p.status()):
		return
	case IsSuspended(p.Job):
		conditions.Clear(p.status(), condition, p.Now)
		return
	}
	var queue string
	queued, waiting, managed := 0, 0, 0
	for _, pod := range p.current() {
		marks := queueing.On(pod)
		if marks.Queue == "" || podstate.Terminating(pod) || podstate.Finished(pod) {
			continue
		}
		queue = marks.Queue
		queued++
		if queueing.IsWaiting(pod) {
			waiting++
		}
		if queueing.IsManaged(pod) {
			managed++
		}
	}
	switch {
	case queued == 0:
		// Between two starts there is a moment without pods.
	case managed == 0:
		p.reportUnmanaged(queue)
	case waiting == queued:
		conditions.Set(p.status(), condition, corev1.ConditionFalse, v2alpha1.ReasonWaitingInQueue,
			fmt.Sprintf("the job waits in queue %s for Kueue to admit it", queue), p.Now)
	default:
		conditions.Set(p.status(), condition, corev1.ConditionTrue, v2alpha1.ConditionAdmitted,
			"Kueue has admitted the job from queue "+queue, p.Now)
	}
}

func (p *plan) reportUnmanaged(queue string) {
	message := fmt.Sprintf("Kueue does not manage the pods for queue %s, so they run without admission: "+
		"its integration \"pod\" is off, or does not cover namespace %s", queue, p.Job.Namespace)
	if conditions.Set(p.status(), v2alpha1.ConditionAdmitted, corev1.ConditionFalse, v2alpha1.ReasonNotManagedByKueue, message, p.Now) {
		p.event(corev1.EventTypeWarning, v2alpha1.ReasonNotManagedByKueue, message)
	}
}
