// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/scaling"
	"opendilab.org/di-orchestrator/internal/workload"
)

// requestCounts writes the counts of a plan into the spec, once. Another writer may change them from then
// on.
func (p *Plan) requestCounts() state.Result {
	if !p.execution.IsExecuting() || p.execution.Record().Resized {
		return state.Continue
	}
	if counts := p.facts.countsOf(p.execution.Record()); len(counts) > 0 {
		p.out.Decision.Counts = &state.Counts{Manager: names.PlanManager(p.execution.Record().Name), Tasks: counts}
	}
	return state.Continue
}

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

// migrate deletes the pods that a plan replaces. Their replicas keep their names and ranks.
func (s *staffing) migrate() state.Result {
	return s.execution.Migrate(s.mayRelease)
}

// progressOfPlan returns what the executing plan waits for.
func (o *outcome) progressOfPlan(plan *v2alpha1.ScalePlan) scaling.Progress {
	progress := scaling.Progress{Missing: o.missingOfPlan(plan), Failed: o.refusedByDrain()}
	if progress.Failed == "" && o.execution.Record().Resized {
		progress.Failed = o.otherCount()
	}
	return progress
}

// refusedByDrain describes the pod that the plan removes or replaces and that is kept because its state was
// not handed over, "" for none.
func (o *outcome) refusedByDrain() string {
	if !o.execution.Record().Resized || o.facts.isExcessive() {
		return ""
	}
	desired := map[string]bool{}
	for i := range o.ranked.assignment.Replicas {
		desired[o.ranked.assignment.Replicas[i].Pod] = true
	}
	for _, pod := range o.in.Pods {
		isMigrated := slices.ContainsFunc(o.execution.Record().Migrations, func(migrated v2alpha1.MigratedPod) bool { return migrated.UID == string(pod.UID) })
		if (isMigrated || !desired[pod.Name]) && o.handshake.IsFailed(pod) {
			return fmt.Sprintf("pod %s is kept: its state was not handed over", pod.Name)
		}
	}
	return ""
}

// otherCount describes the count that another writer changed after the plan set it, "" for none.
func (o *outcome) otherCount() string {
	for i := range o.in.Job.Spec.Tasks {
		task := names.TaskName(&o.in.Job.Spec.Tasks[i])
		if wanted, isSet := o.execution.Record().Replicas[task]; isSet && o.facts.counts.Spec[task] != wanted {
			return fmt.Sprintf("another writer set %s of task %s after the plan had set %d", english.Plural(int(o.facts.counts.Spec[task]), "replica", ""), task, wanted)
		}
	}
	return ""
}

// missingOfPlan describes what is missing until a plan is complete, "" for nothing.
func (o *outcome) missingOfPlan(plan *v2alpha1.ScalePlan) string {
	record := o.execution.Record()
	switch {
	case o.facts.isExcessive():
		return "the job has too many pods"
	case !record.Resized:
		return "the replicas are not in the job's spec yet"
	case state.IsSuspended(o.in.Job):
		return "the job is suspended"
	case len(o.ranked.assignment.Replicas) != int(o.facts.counts.Total):
		return "the job restarts"
	}
	desired, planned := map[string]bool{}, o.plannedTasks(plan)
	for i := range o.ranked.assignment.Replicas {
		replica := &o.ranked.assignment.Replicas[i]
		desired[replica.Pod] = true
		if !planned[replica.Task] {
			continue
		}
		if missing := o.missingOfReplica(replica); missing != "" {
			return missing
		}
	}
	for _, pod := range o.in.Pods {
		if !desired[pod.Name] {
			return fmt.Sprintf("pod %s still exists", pod.Name)
		}
	}
	return o.missingMigration()
}

// plannedTasks returns the indexes of the tasks whose replicas or resources a plan sets.
func (o *outcome) plannedTasks(plan *v2alpha1.ScalePlan) map[int]bool {
	planned := map[int]bool{}
	for i := range o.in.Job.Spec.Tasks {
		task := names.TaskName(&o.in.Job.Spec.Tasks[i])
		_, planned[i] = o.execution.Record().Replicas[task]
		planned[i] = planned[i] || slices.ContainsFunc(plan.Spec.Tasks, func(scale v2alpha1.TaskScale) bool { return scale.Name == task }) ||
			slices.ContainsFunc(plan.Spec.Migrate, func(migration v2alpha1.PodMigration) bool {
				_, isOf := ranks.IndexOf(o.in.Job.Name, task, migration.Pod)
				return isOf
			})
	}
	return planned
}

func (o *outcome) missingOfReplica(replica *workload.Replica) string {
	if o.ranked.completed.Has(replica.Rank) {
		return ""
	}
	sized := o.facts.sized(replica)
	return o.sizes.Missing(&sized, replica.Pod)
}

func (o *outcome) missingMigration() string {
	for _, migrated := range o.execution.Record().Migrations {
		pod := o.in.PodNamed[migrated.Pod]
		isReplaced := pod != nil && string(pod.UID) != migrated.UID && podstate.Ready(pod)
		isFinished := pod != nil && podstate.Finished(pod)
		if !isReplaced && !isFinished {
			return fmt.Sprintf("pod %s is not replaced yet", migrated.Pod)
		}
	}
	return ""
}
