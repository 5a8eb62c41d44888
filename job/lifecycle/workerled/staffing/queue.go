// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package staffing

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/groups"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/workload"
)

// isGrowthUnrecorded reports whether groups are not recorded yet. Their pods are created after that.
func (s *Stage) isGrowthUnrecorded() bool {
	var before *v2alpha1.QueuedGrowth
	if scaling := s.in.Job.Status.Scaling; scaling != nil {
		before = scaling.Growth
	}
	return !equality.Semantic.DeepEqual(before, s.ranked.Growth.Record)
}

// addedMeta returns Kueue's metadata for the pod of an added replica. It queues where the others do.
func (s *Stage) addedMeta(rank int32) queueing.PodMeta {
	meta := s.in.Queued()
	if members := s.out.Current(); len(members) > 0 {
		meta = queueing.FromPod(members[0]).Ungrouped()
	}
	at := s.ranked.Growth.Group(rank)
	if at < 0 {
		return meta.Ungrouped()
	}
	return meta.Grouped(s.start(), s.ranked.Growth.Record.Groups[at].Number, int(s.ranked.Growth.Groups[at].Count()))
}

// start identifies the start of the pods that are created now.
func (s *Stage) start() queueing.Start {
	return queueing.StartOf(s.in.Job, s.ranked.Assignment.Attempt, s.ranked.Assignment.Reschedule)
}

// podMeta returns Kueue's metadata for the pod of a replica that is created now. start is that of pods of the
// job's start.
func (s *Stage) podMeta(replica *workload.Replica, start queueing.PodMeta) queueing.PodMeta {
	if s.ranked.Growth.Has(replica.Rank) {
		return s.addedMeta(replica.Rank)
	}
	return start
}

// findPodMeta returns the metadata of the pods of the job's start.
func (s *Stage) findPodMeta() queueing.PodMeta {
	members := s.out.Current()
	isFresh := len(members) == 0 && s.ranked.Completed.IsEmpty()
	if isFresh {
		return s.in.Queued().Grouped(s.start(), groups.First, len(s.ranked.Assignment.Replicas)-int(s.ranked.Growth.Count()))
	}
	var former queueing.PodMeta
	for _, pod := range members {
		meta, isFirst := groups.InFirst(s.in.Job, pod)
		if isFirst && queueing.IsInLine(pod) {
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
func (s *Stage) mayQueue() bool {
	if s.in.Job.Spec.Preemptible && s.in.Queued().Queue != "" && len(s.out.Current()) == 0 {
		s.out.Invalidate(fmt.Sprintf(
			"queue %s is Kueue's, and a preemptible job is the allocator's to place: it can have one of the two", s.in.Queued().Queue))
		return false
	}
	return true
}
