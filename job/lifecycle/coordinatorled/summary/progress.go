// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// progressOfPlan returns what the executing plan waits for.
func (o *Outcome) progressOfPlan(plan *v2alpha1.ScalePlan) scaling.Progress {
	switch {
	case state.IsSuspended(o.in.Job):
		return scaling.Progress{Missing: "the job is suspended"}
	case !o.facts.IsKnown || !o.execution.Record().Resized || o.out.Decision.UpdateMembership != nil:
		return scaling.Progress{Missing: "the members are not in the Membership yet"}
	}
	if failed := o.refusedByDrain(); failed != "" {
		return scaling.Progress{Missing: failed, Failed: failed}
	}
	if failed := o.otherCount(); failed != "" {
		return scaling.Progress{Missing: failed, Failed: failed}
	}
	return scaling.Progress{Missing: o.missingOfPlan(plan)}
}

// refusedByDrain describes the pod that is kept because its state was not handed over, "" for none.
func (o *Outcome) refusedByDrain() string {
	for _, pod := range o.in.Pods {
		if o.handshake.IsFailed(pod) {
			return fmt.Sprintf("pod %s stays: its state was not handed over", pod.Name)
		}
	}
	return ""
}

// otherCount describes the count that another writer changed after the plan set it, "" for none.
func (o *Outcome) otherCount() string {
	for task, wanted := range o.execution.Record().Replicas {
		count := 0
		for i := range o.facts.Slots {
			if names.NameOfType(&o.in.Job.Spec, o.facts.Slots[i].Member.Task) == task {
				count++
			}
		}
		if count != int(wanted) {
			return fmt.Sprintf("another writer set %s of task %s after the plan had set %d", english.Plural(count, "member", ""), task, wanted)
		}
	}
	return ""
}

// missingOfPlan describes what is missing until the pods are as planned, "" for nothing.
func (o *Outcome) missingOfPlan(plan *v2alpha1.ScalePlan) string {
	for _, migrated := range o.execution.Record().Migrations {
		if pod := o.in.PodNamed[migrated.Pod]; pod != nil && string(pod.UID) == migrated.UID {
			return fmt.Sprintf("pod %s is not replaced yet", migrated.Pod)
		}
	}
	for i := range o.facts.Slots {
		id := workload.MemberID(o.in.Job, o.facts.Slots[i].Member)
		if !o.isPlanned(plan, id.Task) {
			continue
		}
		if missing := o.missingOfSlot(&o.facts.Slots[i], id); missing != "" {
			return missing
		}
	}
	if excess := o.facts.Excess(); len(excess) > 0 {
		return fmt.Sprintf("pod %s still exists", excess[0].Name)
	}
	return ""
}

// isPlanned reports whether a plan sets the members or resources of a task, or migrates pods.
func (o *Outcome) isPlanned(plan *v2alpha1.ScalePlan, task string) bool {
	_, isCounted := o.execution.Record().Replicas[task]
	isSized := slices.ContainsFunc(plan.Spec.Tasks, func(scale v2alpha1.TaskScale) bool { return scale.Name == task })
	return isCounted || isSized || len(plan.Spec.Migrate) > 0
}

// missingOfSlot describes what is missing until the pods of a slot are as planned, "" for nothing.
func (o *Outcome) missingOfSlot(slot *slots.Slot, id workload.ReplicaID) string {
	for _, name := range slot.Pods {
		replica := rightsize.Replica{ReplicaID: id, Pod: o.in.PodNamed[name]}
		if replica.Pod != nil && names.RoleOf(replica.Pod) == names.ReplicaTypeAggregator {
			// Its template is not the job's.
			replica.ReplicaID = workload.ReplicaID{}
		}
		if missing := o.sizes.Missing(&replica, name); missing != "" {
			return missing
		}
	}
	return ""
}
