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
