// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// A job queues with Kueue through its pods. The pods with which an attempt of a worker-led job
// starts are its first group. Kueue admits, evicts and finishes a group as a whole. It neither
// resizes a group nor reopens a finished one, so each attempt and reschedule has its own groups.
// A recreated pod joins the first group while others of it are active; otherwise it queues by
// itself. Replicas that are added later are groups of their own. A job that started without a queue
// continues without one.

// firstGroup is the number of the group of a job's start.
const firstGroup = 0

// groupOf returns the metadata of a pod of a worker-led job, the number of its group, and whether
// the operator created that group.
func (f *facts) groupOf(pod *corev1.Pod) (meta queueing.PodMeta, number int32, grouped bool) {
	meta = queueing.FromPod(pod)
	number, grouped = meta.Number(f.in.Job, podstate.Attempt(pod), podstate.Reschedule(pod))
	return meta, number, grouped
}

// inFirstGroup returns the metadata of a pod that is in the first group of its attempt.
func (f *facts) inFirstGroup(pod *corev1.Pod) (queueing.PodMeta, bool) {
	meta, number, grouped := f.groupOf(pod)
	return meta, grouped && number == firstGroup
}

// isGrouped reports whether the pods of a status's attempt are groups that Kueue admits as a
// whole.
func (f *facts) isGrouped(status *v2alpha1.DIJobStatus) bool {
	return slices.ContainsFunc(f.in.Pods, func(pod *corev1.Pod) bool {
		_, _, grouped := f.groupOf(pod)
		return grouped && !state.IsStale(pod, status)
	})
}

// isInLine reports whether a pod keeps its group unfinished.
func isInLine(pod *corev1.Pod) bool {
	return !podstate.Finished(pod) && !queueing.HasOnlyFinalizer(pod) && !queueing.IsAbandoned(pod)
}

// whyRequeued describes why all replicas must queue again, "" if they do not.
func (p *Plan) whyRequeued() string {
	if p.in.Job.Spec.Preemptible {
		return ""
	}
	started := p.facts.startSize()
	for _, pod := range p.out.Current() {
		meta, isFirst := p.facts.inFirstGroup(pod)
		message, evicted := queueing.Eviction(pod)
		switch {
		case isFirst && evicted:
			return "Kueue evicted the job, which queues again: " + message
		case isFirst && meta.Size != int(started):
			// The job was resized while it was suspended, and some of its pods are left.
			return fmt.Sprintf("the job has %s, but queues for %d", english.Plural(int(started), "replica", ""), meta.Size)
		}
	}
	switch {
	case p.in.Queued().Queue == "" || p.facts.counts.Total < 2 || !p.facts.recorded.IsEmpty():
		return ""
	case conditions.IsTrue(&p.in.Job.Status, v2alpha1.ConditionSuspended) && len(p.in.Pods) == 0:
		return "the job was resumed and queues again"
	case p.isDeserted():
		return "all replicas are gone, and the job queues again"
	}
	return ""
}

// isDeserted reports whether disruptions ended all pods of a job's start, so that its first group has
// finished.
func (p *Plan) isDeserted() bool {
	if phase := p.in.Job.Status.Phase; phase != v2alpha1.JobStarting && phase != v2alpha1.JobRunning {
		return false
	}
	return !slices.ContainsFunc(p.out.Current(), func(pod *corev1.Pod) bool {
		isAdded := p.facts.grown.has(podstate.Rank(pod))
		return !isAdded && isInLine(pod) || pod.Status.Phase == corev1.PodSucceeded || state.HasFailed(p.in.Job, pod)
	})
}

// podMeta returns Kueue's metadata for the pod of a replica that is created now. start is that of pods of the
// job's start.
func (s *staffing) podMeta(replica *workload.Replica, start queueing.PodMeta) queueing.PodMeta {
	if s.ranked.growth.has(replica.Rank) {
		return s.addedMeta(replica.Rank)
	}
	return start
}

// findPodMeta returns the metadata of the pods of the job's start.
func (s *staffing) findPodMeta() queueing.PodMeta {
	members := s.out.Current()
	isFresh := len(members) == 0 && s.ranked.completed.IsEmpty()
	if isFresh {
		return s.in.Queued().Grouped(s.in.Job, s.ranked.assignment.Attempt, s.ranked.assignment.Reschedule, len(s.ranked.assignment.Replicas)-int(s.ranked.growth.count()))
	}
	var former queueing.PodMeta
	for _, pod := range members {
		meta, isFirst := s.facts.inFirstGroup(pod)
		if isFirst && isInLine(pod) {
			return meta
		}
		if isFirst {
			former = meta
		}
	}
	isUnqueued := func(pod *corev1.Pod) bool { return queueing.FromPod(pod).Queue == "" }
	switch {
	case former.Queue != "":
		return former.Ungrouped()
	case slices.ContainsFunc(members, isUnqueued):
		return queueing.PodMeta{}
	}
	return s.in.Queued()
}

// mayQueue reports whether the job's queue permits creating its pods. The allocator and Kueue
// cannot both decide when and where the job runs.
func (s *staffing) mayQueue() bool {
	if s.in.Job.Spec.Preemptible && s.in.Queued().Queue != "" && len(s.out.Current()) == 0 {
		s.out.Invalidate(fmt.Sprintf(
			"queue %s is Kueue's, and a preemptible job is the allocator's to place: it can have one of the two", s.in.Queued().Queue))
		return false
	}
	return true
}

// releaseHeld removes Kueue's finalizer from pods that are otherwise deleted. The pods that replace
// them have the same names, and Kueue waits for them. An eviction is recorded first.
func (p *Plan) releaseHeld() state.Result {
	for _, pod := range p.in.Pods {
		_, evicted := queueing.Eviction(pod)
		isRecorded := podstate.PlausibleCount(podstate.Attempt(pod), p.in.Job.Status.Restarts) < p.in.Job.Status.Restarts ||
			podstate.PlausibleCount(podstate.Reschedule(pod), p.in.Job.Status.Reschedules) < p.in.Job.Status.Reschedules
		if queueing.HasOnlyFinalizer(pod) && (!evicted || isRecorded || !p.out.IsStale(pod) && !p.isOfRecordedGrowth(pod)) {
			p.out.Decision.ReleasePods = append(p.out.Decision.ReleasePods, queueing.Release(pod))
		}
	}
	return state.Continue
}
