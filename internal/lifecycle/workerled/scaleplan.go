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
	if counts := p.countsOfPlan(); len(counts) > 0 {
		p.out.Decision.Counts = &state.Counts{Manager: names.PlanManager(p.execution.Record().Name), Tasks: counts}
	}
	return state.Continue
}

// countsOfPlan returns the counts of the executed plan that the spec does not have.
func (p *Plan) countsOfPlan() []state.Count {
	elastic := -1
	if p.in.Job.Spec.Elastic != nil && p.in.Job.Spec.Elastic.Replicas != nil {
		elastic = names.ElasticTask(&p.in.Job.Spec)
	}
	var counts []state.Count
	for i := range p.in.Job.Spec.Tasks {
		task := names.TaskName(&p.in.Job.Spec.Tasks[i])
		if wanted, isSet := p.execution.Record().Replicas[task]; isSet && p.facts.counts.Spec[task] != wanted {
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

// recordIndexes records the indexes of tasks with gaps between them, together with the ranks. A plan whose
// counts the spec has needs nothing else for them.
func (p *Plan) recordIndexes() {
	scaling := p.out.Status().Scaling
	scaling.Indexes = nil
	for i, indexes := range p.facts.indexes {
		if text := formatIndexes(indexes); text != "" {
			if scaling.Indexes == nil {
				scaling.Indexes = map[string]string{}
			}
			scaling.Indexes[names.TaskName(&p.in.Job.Spec.Tasks[i])] = text
		}
	}
	if p.execution.IsExecuting() && len(p.countsOfPlan()) == 0 {
		scaling.Plan.Resized = true
	}
}

// migrate deletes the pods that a plan replaces. Their replicas keep their names and ranks.
func (p *Plan) migrate() state.Result {
	return p.execution.Migrate(p.mayRelease)
}

// progressOfPlan returns what the executing plan waits for.
func (p *Plan) progressOfPlan(plan *v2alpha1.ScalePlan) scaling.Progress {
	progress := scaling.Progress{Missing: p.missingOfPlan(plan), Failed: p.refusedByDrain()}
	if progress.Failed == "" && p.execution.Record().Resized {
		progress.Failed = p.otherCount()
	}
	return progress
}

// refusedByDrain describes the pod that the plan removes or replaces and that is kept because its state was
// not handed over, "" for none.
func (p *Plan) refusedByDrain() string {
	if !p.execution.Record().Resized || p.facts.isExcessive() {
		return ""
	}
	desired := map[string]bool{}
	for i := range p.assignment.Replicas {
		desired[p.assignment.Replicas[i].Pod] = true
	}
	for _, pod := range p.in.Pods {
		isMigrated := slices.ContainsFunc(p.execution.Record().Migrations, func(migrated v2alpha1.MigratedPod) bool { return migrated.UID == string(pod.UID) })
		if (isMigrated || !desired[pod.Name]) && p.handshake.IsFailed(pod) {
			return fmt.Sprintf("pod %s is kept: its state was not handed over", pod.Name)
		}
	}
	return ""
}

// otherCount describes the count that another writer changed after the plan set it, "" for none.
func (p *Plan) otherCount() string {
	for i := range p.in.Job.Spec.Tasks {
		task := names.TaskName(&p.in.Job.Spec.Tasks[i])
		if wanted, isSet := p.execution.Record().Replicas[task]; isSet && p.facts.counts.Spec[task] != wanted {
			return fmt.Sprintf("another writer set %s of task %s after the plan had set %d", english.Plural(int(p.facts.counts.Spec[task]), "replica", ""), task, wanted)
		}
	}
	return ""
}

// missingOfPlan describes what is missing until a plan is complete, "" for nothing.
func (p *Plan) missingOfPlan(plan *v2alpha1.ScalePlan) string {
	record := p.execution.Record()
	switch {
	case p.facts.isExcessive():
		return "the job has too many pods"
	case !record.Resized:
		return "the replicas are not in the job's spec yet"
	case state.IsSuspended(p.in.Job):
		return "the job is suspended"
	case len(p.assignment.Replicas) != int(p.facts.counts.Total):
		return "the job restarts"
	}
	desired, planned := map[string]bool{}, p.plannedTasks(plan)
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		desired[replica.Pod] = true
		if !planned[replica.Task] {
			continue
		}
		if missing := p.missingOfReplica(replica); missing != "" {
			return missing
		}
	}
	for _, pod := range p.in.Pods {
		if !desired[pod.Name] {
			return fmt.Sprintf("pod %s still exists", pod.Name)
		}
	}
	return p.missingMigration()
}

// plannedTasks returns the indexes of the tasks whose replicas or resources a plan sets.
func (p *Plan) plannedTasks(plan *v2alpha1.ScalePlan) map[int]bool {
	planned := map[int]bool{}
	for i := range p.in.Job.Spec.Tasks {
		task := names.TaskName(&p.in.Job.Spec.Tasks[i])
		_, planned[i] = p.execution.Record().Replicas[task]
		planned[i] = planned[i] || slices.ContainsFunc(plan.Spec.Tasks, func(scale v2alpha1.TaskScale) bool { return scale.Name == task }) ||
			slices.ContainsFunc(plan.Spec.Migrate, func(migration v2alpha1.PodMigration) bool {
				_, isOf := ranks.IndexOf(p.in.Job.Name, task, migration.Pod)
				return isOf
			})
	}
	return planned
}

func (p *Plan) missingOfReplica(replica *workload.Replica) string {
	if p.completed().Has(replica.Rank) {
		return ""
	}
	sized := p.facts.sized(replica)
	return p.sizes.Missing(&sized, replica.Pod)
}

func (p *Plan) missingMigration() string {
	for _, migrated := range p.execution.Record().Migrations {
		pod := p.in.PodNamed[migrated.Pod]
		isReplaced := pod != nil && string(pod.UID) != migrated.UID && podstate.Ready(pod)
		isFinished := pod != nil && podstate.Finished(pod)
		if !isReplaced && !isFinished {
			return fmt.Sprintf("pod %s is not replaced yet", migrated.Pod)
		}
	}
	return ""
}
