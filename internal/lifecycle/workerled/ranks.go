// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/scaling"
	"opendilab.org/di-orchestrator/internal/workload"
)

// recordRanks records the rank assignment. So a replica keeps its rank even if all pods are gone at
// once, as between two attempts. Completed ranks then still belong to the same replicas. Ranks in
// the order of a single task need no record. Those of several tasks do, because a user may reorder
// the tasks. While no pod exists and none is desired, the record stays.
func (a *ranked) recordRanks(execution scaling.Execution) {
	if a.out.Status().Scaling == nil || len(a.in.Pods) == 0 && (state.IsSuspended(a.in.Job) || state.IsUnplaced(a.in.Job)) {
		return
	}
	scaling := a.out.Scaling()
	scaling.Indexes, scaling.Ranks = a.facts.gapped(), nil
	replicas := a.assignment.Replicas
	if !ranks.IsInOrder(replicas) || len(replicas) > 0 && replicas[0].Task != replicas[len(replicas)-1].Task {
		scaling.Ranks = ranks.Record(a.in.Job, replicas)
	}
	a.out.RecordScaling(&scaling)
	// A plan whose counts the spec has needs nothing else for them.
	if execution.IsExecuting() && len(a.facts.countsOf(execution.Record())) == 0 {
		execution.RecordResized()
	}
}

// isAnyMoved reports whether a replica without a pod has another rank than recorded. The new rank
// is recorded before its pod is created. Otherwise a reconcile that creates only some of the pods
// would leave pods and record in disagreement.
func (s *staffing) isAnyMoved() bool {
	before := s.in.Job.Status.Scaling
	if before == nil || len(before.Ranks) == 0 {
		return false
	}
	recorded := make([]ranks.Recorded, len(s.in.Job.Spec.Tasks))
	for i := range recorded {
		task := names.TaskName(&s.in.Job.Spec.Tasks[i])
		recorded[i] = ranks.ReadRecorded(before, task, before.Ranks[task])
	}
	return slices.ContainsFunc(s.ranked.assignment.Replicas, func(replica workload.Replica) bool {
		rank := recorded[replica.Task].Rank(replica.Index)
		return s.in.PodNamed[replica.Pod] == nil && rank != podstate.Unranked && rank != replica.Rank
	})
}

// isCompletedByOther reports whether a completed rank belongs to another replica in the order of
// the spec. When a job is placed, ranks start in that order.
func (f *facts) isCompletedByOther() bool {
	before := f.in.Job.Status.Scaling
	if before == nil || f.recorded.IsEmpty() {
		return false
	}
	return ranks.IsCompletedByOther(f.in.Job, &f.recorded, f.counts.ByTask)
}

// hasForeignRank reports whether a pod was created with a rank that another replica has now. That
// happens if a second resize comes before the cache has the pods of the first.
func hasForeignRank(replica *workload.Replica, pod *corev1.Pod) bool {
	rank := podstate.Rank(pod)
	return rank != podstate.Unranked && rank != replica.Rank
}
