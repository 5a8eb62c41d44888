// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/queueing"
)

// A queued job that grows keeps its first group. The added replicas are another group, which Kueue
// admits by itself. The status records which rank is in which group before any pod of it is created.
// Otherwise pods that are missing from the cache would get a group of another size. If a group loses
// some of its ranks, is evicted or has finished, the rest of it becomes a new group. A single
// replica queues by itself, and so does one that must hand over its state before it leaves.

// growth is a parsed record of the replicas that were added to a queued job.
type growth struct {
	// record is nil if there is none.
	record *v2alpha1.QueuedGrowth
	// groups are the ranks of each recorded group.
	groups []ranks.Set
	alone  ranks.Set
}

func parseGrowth(record *v2alpha1.QueuedGrowth) growth {
	if record == nil {
		return growth{}
	}
	parsed := growth{record: record, alone: ranks.Read(record.Alone)}
	for i := range record.Groups[:min(len(record.Groups), limits.GrowthGroups)] {
		parsed.groups = append(parsed.groups, ranks.Read(record.Groups[i].Ranks))
	}
	return parsed
}

// readGrowth returns the recorded growth of a status's attempt.
func (f *facts) readGrowth(status *v2alpha1.DIJobStatus) growth {
	scaling := f.in.Job.Status.Scaling
	if scaling == nil || scaling.Growth == nil || scaling.Growth.Start != f.startOf(status) {
		return growth{}
	}
	return parseGrowth(scaling.Growth)
}

// startOf returns the name of the first group of a status's attempt.
func (f *facts) startOf(status *v2alpha1.DIJobStatus) string {
	return queueing.PodGroupName(f.in.Job, status.Restarts, status.Reschedules, firstGroup)
}

// group returns the place of a rank's group among the recorded ones, -1 if it is in none.
func (g *growth) group(rank int32) int {
	return slices.IndexFunc(g.groups, func(members ranks.Set) bool { return members.Has(rank) })
}

// number returns the number of a rank's group, 0 if it is in none.
func (g *growth) number(rank int32) int32 {
	if at := g.group(rank); at >= 0 {
		return g.record.Groups[at].Number
	}
	return firstGroup
}

// has reports whether a rank was added.
func (g *growth) has(rank int32) bool {
	return g.alone.Has(rank) || g.group(rank) >= 0
}

// count counts the added ranks.
func (g *growth) count() int32 {
	count := g.alone.Count()
	for i := range g.groups {
		count += g.groups[i].Count()
	}
	return count
}

// startSize returns with how many replicas the job started, as recorded.
func (f *facts) startSize() int32 {
	if before := f.in.Job.Status.Scaling; before != nil {
		return before.LastReplicas - f.grown.count()
	}
	return f.counts.Total
}

// changesFirstGroup reports whether a resize needs another first group: Kueue has not admitted the
// present one, or it has replicas that the job no longer desires.
func (f *facts) changesFirstGroup(status *v2alpha1.DIJobStatus) bool {
	if len(f.resizes) == 0 || !f.isGrouped(status) {
		return false
	}
	isAdmitted := slices.ContainsFunc(f.in.Pods, func(pod *corev1.Pod) bool {
		_, isFirst := f.inFirstGroup(pod)
		return isFirst && !state.IsStale(pod, status) && !queueing.IsWaiting(pod)
	})
	before := f.in.Job.Status.Scaling
	if before == nil || !isAdmitted {
		return true
	}
	grown := f.readGrowth(status)
	for task, run := range ranks.Former(f.in.Job, before) {
		kept := f.keptRanks(task, run)
		if slices.ContainsFunc(ranks.ReadRun(run), func(rank int32) bool { return !kept[rank] && !grown.has(rank) }) {
			return true
		}
	}
	return false
}

// keptRanks returns which of a task's recorded ranks belong to replicas that the job still desires.
func (f *facts) keptRanks(task, run string) map[int32]bool {
	kept := map[int32]bool{}
	recorded := ranks.ReadRecorded(f.in.Job.Status.Scaling, task, run)
	for i := range f.in.Job.Spec.Tasks[:len(f.indexes)] {
		if names.TaskName(&f.in.Job.Spec.Tasks[i]) != task {
			continue
		}
		for _, index := range f.indexes[i] {
			kept[recorded.Rank(index)] = true
		}
	}
	return kept
}

// formerTasks returns the task of each recorded rank.
func (f *facts) formerTasks() map[int32]string {
	tasks := map[int32]string{}
	for task, run := range ranks.Former(f.in.Job, f.in.Job.Status.Scaling) {
		for _, rank := range ranks.ReadRun(run) {
			tasks[rank] = task
		}
	}
	return tasks
}
