// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// isGrowthUnrecorded reports whether groups are not recorded yet. Their pods are created after that.
func (s *staffing) isGrowthUnrecorded() bool {
	var before *v2alpha1.QueuedGrowth
	if scaling := s.in.Job.Status.Scaling; scaling != nil {
		before = scaling.Growth
	}
	return !equality.Semantic.DeepEqual(before, s.ranked.growth.record)
}

// isOfFormerGroup reports whether the pod of an added replica is in another group than the replica. Kueue
// would admit the replica's group only with a pod for each of its replicas, and keeps the quota of the other.
func (s *staffing) isOfFormerGroup(replica *workload.Replica, pod *corev1.Pod) bool {
	_, number, grouped := s.facts.groupOf(pod)
	return grouped && s.ranked.growth.has(replica.Rank) && number != s.ranked.growth.number(replica.Rank)
}

// addedMeta returns Kueue's metadata for the pod of an added replica. It queues where the others do.
func (s *staffing) addedMeta(rank int32) queueing.PodMeta {
	meta := s.in.Queued()
	if members := s.out.Current(); len(members) > 0 {
		meta = queueing.FromPod(members[0]).Ungrouped()
	}
	at := s.ranked.growth.group(rank)
	if at < 0 {
		return meta.Ungrouped()
	}
	return meta.Added(s.in.Job, s.ranked.assignment.Attempt, s.ranked.assignment.Reschedule, s.ranked.growth.record.Groups[at].Number, int(s.ranked.growth.groups[at].Count()))
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
