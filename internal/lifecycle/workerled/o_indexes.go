// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scaling"
)

// countsOf returns the counts of a plan that the spec does not have.
func (f *facts) countsOf(plan *v2alpha1.PlanRecord) []state.Count {
	elastic := -1
	if f.in.Job.Spec.Elastic != nil && f.in.Job.Spec.Elastic.Replicas != nil {
		elastic = names.ElasticTask(&f.in.Job.Spec)
	}
	var counts []state.Count
	for i := range f.in.Job.Spec.Tasks {
		task := names.TaskName(&f.in.Job.Spec.Tasks[i])
		if wanted, isSet := plan.Replicas[task]; isSet && f.counts.Spec[task] != wanted {
			counts = append(counts, state.Count{Task: i, IsElastic: i == elastic, Replicas: wanted})
		}
	}
	return counts
}

// desiredIndexes returns the indexes of each task's replicas. A plan that names pods sets them once the spec has its
// counts.
func (f *facts) desiredIndexes() [][]int32 {
	indexes := make([][]int32, len(f.counts.ByTask))
	for i, count := range f.counts.ByTask {
		indexes[i] = ranks.Indexes(f.recordedIndexes(i), count)
		if planned := f.plannedIndexes(i); len(planned) == int(count) && count > 0 {
			indexes[i] = planned
		}
	}
	return indexes
}

func (f *facts) recordedIndexes(task int) string {
	if scaling := f.in.Job.Status.Scaling; scaling != nil {
		return scaling.Indexes[names.TaskName(&f.in.Job.Spec.Tasks[task])]
	}
	return ""
}

// plannedIndexes returns the indexes that the executed plan gives a task's replicas, nil if it gives none.
func (f *facts) plannedIndexes(task int) []int32 {
	plan := scaling.RecordOf(f.in.Job)
	if plan == nil || plan.Phase != v2alpha1.PlanExecuting || plan.Resized {
		return nil
	}
	return ranks.ReadRun(plan.Indexes[names.TaskName(&f.in.Job.Spec.Tasks[task])])
}

// isReindexed reports whether a task's replicas have other indexes than recorded.
func (f *facts) isReindexed() bool {
	for i, indexes := range f.indexes {
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

// gapped returns the indexes of the tasks that have gaps between them, nil for none.
func (f *facts) gapped() map[string]string {
	var gapped map[string]string
	for i, indexes := range f.indexes {
		if text := formatIndexes(indexes); text != "" {
			if gapped == nil {
				gapped = map[string]string{}
			}
			gapped[names.TaskName(&f.in.Job.Spec.Tasks[i])] = text
		}
	}
	return gapped
}
