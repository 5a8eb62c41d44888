// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/queueing"
)

// A queued job that grows keeps its first group. The added replicas are another group, which Kueue
// admits by itself. The status records which rank is in which group before any pod of it is created.
// Otherwise pods that are missing from the cache would get a group of another size. If a group loses
// some of its ranks, is evicted or has finished, the rest of it becomes a new group. A single
// replica queues by itself, and so does one that must hand over its state before it leaves.

// Growth is a parsed record of the replicas that were added to a queued job.
type Growth struct {
	// Record is nil if there is none.
	Record *v2alpha1.QueuedGrowth
	// Groups are the ranks of each recorded group.
	Groups []ranks.Set
	Alone  ranks.Set
}

// ParseGrowth returns recorded replicas that were added to a queued job.
func ParseGrowth(record *v2alpha1.QueuedGrowth) Growth {
	if record == nil {
		return Growth{}
	}
	parsed := Growth{Record: record, Alone: ranks.Read(record.Alone)}
	for i := range record.Groups[:min(len(record.Groups), limits.GrowthGroups)] {
		parsed.Groups = append(parsed.Groups, ranks.Read(record.Groups[i].Ranks))
	}
	return parsed
}

// ReadGrowth returns the recorded growth of a status's attempt.
func (f *Facts) ReadGrowth(status *v2alpha1.DIJobStatus) Growth {
	scaling := f.In.Job.Status.Scaling
	if scaling == nil || scaling.Growth == nil || scaling.Growth.Start != f.StartOf(status) {
		return Growth{}
	}
	return ParseGrowth(scaling.Growth)
}

// StartOf returns the name of the first group of a status's attempt.
func (f *Facts) StartOf(status *v2alpha1.DIJobStatus) string {
	return queueing.PodGroupName(f.In.Job, status.Restarts, status.Reschedules, firstGroup)
}

// Group returns the place of a rank's group among the recorded ones, -1 if it is in none.
func (g *Growth) Group(rank int32) int {
	return slices.IndexFunc(g.Groups, func(members ranks.Set) bool { return members.Has(rank) })
}

// Number returns the number of a rank's group, 0 if it is in none.
func (g *Growth) Number(rank int32) int32 {
	if at := g.Group(rank); at >= 0 {
		return g.Record.Groups[at].Number
	}
	return firstGroup
}

// Has reports whether a rank was added.
func (g *Growth) Has(rank int32) bool {
	return g.Alone.Has(rank) || g.Group(rank) >= 0
}

// Count counts the added ranks.
func (g *Growth) Count() int32 {
	count := g.Alone.Count()
	for i := range g.Groups {
		count += g.Groups[i].Count()
	}
	return count
}

// StartSize returns with how many replicas the job started, as recorded.
func (f *Facts) StartSize() int32 {
	if before := f.In.Job.Status.Scaling; before != nil {
		return before.LastReplicas - f.Grown.Count()
	}
	return f.Counts.Total
}

// changesFirstGroup reports whether a resize needs another first group: Kueue has not admitted the
// present one, or it has replicas that the job no longer desires.
func (f *Facts) changesFirstGroup(status *v2alpha1.DIJobStatus) bool {
	if len(f.Resizes) == 0 || !f.IsGrouped(status) {
		return false
	}
	isAdmitted := slices.ContainsFunc(f.In.Pods, func(pod *corev1.Pod) bool {
		_, isFirst := f.InFirstGroup(pod)
		return isFirst && !state.IsStale(pod, status) && !queueing.IsWaiting(pod)
	})
	before := f.In.Job.Status.Scaling
	if before == nil || !isAdmitted {
		return true
	}
	grown := f.ReadGrowth(status)
	for task, run := range ranks.Former(f.In.Job, before) {
		kept := f.keptRanks(task, run)
		if slices.ContainsFunc(ranks.ReadRun(run), func(rank int32) bool { return !kept[rank] && !grown.Has(rank) }) {
			return true
		}
	}
	return false
}

// keptRanks returns which of a task's recorded ranks belong to replicas that the job still desires.
func (f *Facts) keptRanks(task, run string) map[int32]bool {
	kept := map[int32]bool{}
	recorded := ranks.ReadRecorded(f.In.Job.Status.Scaling, task, run)
	for i := range f.In.Job.Spec.Tasks[:len(f.Indexes)] {
		if names.TaskName(&f.In.Job.Spec.Tasks[i]) != task {
			continue
		}
		for _, index := range f.Indexes[i] {
			kept[recorded.Rank(index)] = true
		}
	}
	return kept
}

// FormerTasks returns the task of each recorded rank.
func (f *Facts) FormerTasks() map[int32]string {
	tasks := map[int32]string{}
	for task, run := range ranks.Former(f.In.Job, f.In.Job.Status.Scaling) {
		for _, rank := range ranks.ReadRun(run) {
			tasks[rank] = task
		}
	}
	return tasks
}
