// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/scaling"
)

// CountsOf returns the counts of a plan that the spec does not have.
func (f *Facts) CountsOf(plan *v2alpha1.PlanRecord) []state.Count {
	elastic := -1
	if f.In.Job.Spec.Elastic != nil && f.In.Job.Spec.Elastic.Replicas != nil {
		elastic = names.ElasticTask(&f.In.Job.Spec)
	}
	var counts []state.Count
	for i := range f.In.Job.Spec.Tasks {
		task := names.TaskName(&f.In.Job.Spec.Tasks[i])
		if wanted, isSet := plan.Replicas[task]; isSet && f.Counts.Spec[task] != wanted {
			counts = append(counts, state.Count{Task: i, IsElastic: i == elastic, Replicas: wanted})
		}
	}
	return counts
}

// desiredIndexes returns the indexes of each task's replicas. A plan that names pods sets them once the spec has its
// counts.
func (f *Facts) desiredIndexes() [][]int32 {
	indexes := make([][]int32, len(f.Counts.ByTask))
	for i, count := range f.Counts.ByTask {
		indexes[i] = ranks.Indexes(f.recordedIndexes(i), count)
		if planned := f.plannedIndexes(i); len(planned) == int(count) && count > 0 {
			indexes[i] = planned
		}
	}
	return indexes
}

func (f *Facts) recordedIndexes(task int) string {
	if scaling := f.In.Job.Status.Scaling; scaling != nil {
		return scaling.Indexes[names.TaskName(&f.In.Job.Spec.Tasks[task])]
	}
	return ""
}

// plannedIndexes returns the indexes that the executed plan gives a task's replicas, nil if it gives none.
func (f *Facts) plannedIndexes(task int) []int32 {
	plan := scaling.RecordOf(f.In.Job)
	if plan == nil || plan.Phase != v2alpha1.PlanExecuting || plan.Resized {
		return nil
	}
	return ranks.ReadRun(plan.Indexes[names.TaskName(&f.In.Job.Spec.Tasks[task])])
}

// IsReindexed reports whether a task's replicas have other indexes than recorded.
func (f *Facts) IsReindexed() bool {
	for i, indexes := range f.Indexes {
		if formatIndexes(indexes) != f.recordedIndexes(i) {
			return true
		}
	}
	return false
}

// formatIndexes returns indexes as the status records them, "" for indexes without gaps.
func formatIndexes(indexes []int32) string {
	if ranks.IsDense(indexes) {
		return ""
	}
	return ranks.FormatRun(indexes)
}

// Gapped returns the indexes of the tasks that have gaps between them, nil for none.
func (f *Facts) Gapped() map[string]string {
	var gapped map[string]string
	for i, indexes := range f.Indexes {
		if text := formatIndexes(indexes); text != "" {
			if gapped == nil {
				gapped = map[string]string{}
			}
			gapped[names.TaskName(&f.In.Job.Spec.Tasks[i])] = text
		}
	}
	return gapped
}
