// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package indexes decides which indexes the replicas of a worker-led job have in their tasks.
package indexes

import (
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/scaling"
)

// Desired returns the indexes of each task's replicas. A plan that names pods sets them once the spec has its
// counts.
func Desired(job *v2alpha1.DIJob, counts []int32) [][]int32 {
	indexes := make([][]int32, len(counts))
	for i, count := range counts {
		indexes[i] = ranks.Indexes(recorded(job, i), count)
		if next := planned(job, i); len(next) == int(count) && count > 0 {
			indexes[i] = next
		}
	}
	return indexes
}

func recorded(job *v2alpha1.DIJob, task int) string {
	if scaling := job.Status.Scaling; scaling != nil {
		return scaling.Indexes[names.TaskName(&job.Spec.Tasks[task])]
	}
	return ""
}

// planned returns the indexes that the executed plan gives a task's replicas, nil if it gives none.
func planned(job *v2alpha1.DIJob, task int) []int32 {
	plan := scaling.RecordOf(job)
	if plan == nil || plan.Phase != v2alpha1.PlanExecuting || plan.Resized {
		return nil
	}
	return ranks.ReadRun(plan.Indexes[names.TaskName(&job.Spec.Tasks[task])])
}

// AreOther reports whether a task's replicas have other indexes than recorded.
func AreOther(job *v2alpha1.DIJob, desired [][]int32) bool {
	for i, indexes := range desired {
		if format(indexes) != recorded(job, i) {
			return true
		}
	}
	return false
}

// format returns indexes as the status records them, "" for indexes without gaps.
func format(indexes []int32) string {
	if ranks.IsDense(indexes) {
		return ""
	}
	return ranks.FormatRun(indexes)
}

// Gapped returns the indexes of the tasks that have gaps between them, nil for none.
func Gapped(job *v2alpha1.DIJob, desired [][]int32) map[string]string {
	var gapped map[string]string
	for i, indexes := range desired {
		if text := format(indexes); text != "" {
			if gapped == nil {
				gapped = map[string]string{}
			}
			gapped[names.TaskName(&job.Spec.Tasks[i])] = text
		}
	}
	return gapped
}
