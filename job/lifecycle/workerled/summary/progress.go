// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/identity"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// progressOfPlan returns what the executing plan waits for.
func (o *Outcome) progressOfPlan(plan *v2alpha1.ScalePlan) scaling.Progress {
	progress := scaling.Progress{Missing: o.missingOfPlan(plan), Failed: o.refusedByDrain()}
	if progress.Failed == "" && o.execution.Record().Resized {
		progress.Failed = o.otherCount()
	}
	return progress
}

// refusedByDrain describes the pod that the plan removes or replaces and that is kept because its state was
// not handed over, "" for none.
func (o *Outcome) refusedByDrain() string {
	if !o.execution.Record().Resized || o.facts.IsExcessive() {
		return ""
	}
	desired := map[string]bool{}
	for i := range o.ranked.Assignment.Replicas {
		desired[o.ranked.Assignment.Replicas[i].Pod] = true
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
func (o *Outcome) otherCount() string {
	for i := range o.in.Job.Spec.Tasks {
		task := names.TaskName(&o.in.Job.Spec.Tasks[i])
		if wanted, isSet := o.execution.Record().Replicas[task]; isSet && o.facts.Counts.Spec[task] != wanted {
			return fmt.Sprintf("another writer set %s of task %s after the plan had set %d", english.Plural(int(o.facts.Counts.Spec[task]), "replica", ""), task, wanted)
		}
	}
	return ""
}

// missingOfPlan describes what is missing until a plan is complete, "" for nothing.
func (o *Outcome) missingOfPlan(plan *v2alpha1.ScalePlan) string {
	record := o.execution.Record()
	switch {
	case o.facts.IsExcessive():
		return "the job has too many pods"
	case !record.Resized:
		return "the replicas are not in the job's spec yet"
	case state.IsSuspended(o.in.Job):
		return "the job is suspended"
	case len(o.ranked.Assignment.Replicas) != int(o.facts.Counts.Total):
		return "the job restarts"
	}
	desired, planned := map[string]bool{}, o.plannedTasks(plan)
	for i := range o.ranked.Assignment.Replicas {
		replica := &o.ranked.Assignment.Replicas[i]
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
func (o *Outcome) plannedTasks(plan *v2alpha1.ScalePlan) map[int]bool {
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

func (o *Outcome) missingOfReplica(replica *workload.Replica) string {
	if o.ranked.Completed.Has(replica.Rank) {
		return ""
	}
	sized := identity.Sized(o.in, replica)
	return o.sizes.Missing(&sized, replica.Pod)
}

func (o *Outcome) missingMigration() string {
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
