// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/groups"
	"opendilab.org/di-orchestrator/job/queueing"
)

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
	if len(f.Resizes) == 0 || !groups.IsGrouped(f.In, status) {
		return false
	}
	isAdmitted := slices.ContainsFunc(f.In.Pods, func(pod *corev1.Pod) bool {
		_, isFirst := groups.InFirst(f.In.Job, pod)
		return isFirst && !state.IsStale(pod, status) && !queueing.IsWaiting(pod)
	})
	before := f.In.Job.Status.Scaling
	if before == nil || !isAdmitted {
		return true
	}
	grown := groups.Read(f.In.Job, status)
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
