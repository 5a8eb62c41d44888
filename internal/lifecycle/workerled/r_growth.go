// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/queueing"
)

// recordGrowth records in which groups the added replicas queue, and returns them.
func (a *ranked) recordGrowth() growth {
	if a.out.Status().Scaling == nil || state.IsSuspended(a.in.Job) || state.IsFinished(&a.in.Job.Status) {
		return growth{}
	}
	scaling, before := a.out.Scaling(), a.facts.readGrowth(a.out.Status())
	scaling.Growth = nil
	if a.in.Job.Status.Scaling != nil && (before.record != nil || a.facts.isGrouped(a.out.Status())) {
		scaling.Growth = a.nextGrowth(&before)
	}
	a.out.RecordScaling(&scaling)
	return parseGrowth(scaling.Growth)
}

// nextGrowth returns the groups of the desired replicas, nil if none was ever added.
func (a *ranked) nextGrowth(before *growth) *v2alpha1.QueuedGrowth {
	next := &nextGrowth{QueuedGrowth: v2alpha1.QueuedGrowth{Start: a.facts.startOf(a.out.Status())}, alone: map[int32]bool{}}
	members, added := make([][]int32, len(before.groups)), []int32(nil)
	former := a.facts.formerTasks()
	for i := range a.assignment.Replicas {
		replica := &a.assignment.Replicas[i]
		task := &a.in.Job.Spec.Tasks[replica.Task]
		isNew, at := former[replica.Rank] != names.TaskName(task), before.group(replica.Rank)
		switch {
		case isNew && task.Drain == nil:
			added = append(added, replica.Rank)
		case isNew || before.alone.Has(replica.Rank):
			next.alone[replica.Rank] = true
		case at >= 0:
			members[at] = append(members[at], replica.Rank)
		}
	}
	if before.record != nil {
		next.Last = before.record.Last
	}
	for at := range before.groups {
		group := before.record.Groups[at]
		isCreated, isOver := a.stateOfGroup(&group)
		if isOver || len(members[at]) != int(before.groups[at].Count()) {
			next.add(a.withoutCompleted(members[at], next.alone))
			continue
		}
		group.Created = isCreated
		next.Groups = append(next.Groups, group)
	}
	next.add(added)
	next.Alone = ranks.Format(next.alone)
	if next.Last == 0 && next.Alone == "" {
		return nil
	}
	return &next.QueuedGrowth
}

// nextGrowth is a record that is being made.
type nextGrowth struct {
	v2alpha1.QueuedGrowth
	alone map[int32]bool
}

// add adds a group of ranks. A single one queues by itself, and so do those of one group too many.
func (n *nextGrowth) add(members []int32) {
	if len(members) > 1 && len(n.Groups) < limits.GrowthGroups {
		slices.Sort(members)
		n.Last = limits.Sum(n.Last, 1)
		n.Groups = append(n.Groups, v2alpha1.GrowthGroup{Number: n.Last, Ranks: ranks.FormatRun(members)})
		return
	}
	for _, rank := range members {
		n.alone[rank] = true
	}
}

// withoutCompleted returns the ranks that get pods again. It adds the others to those without a group.
func (a *ranked) withoutCompleted(members []int32, alone map[int32]bool) []int32 {
	return slices.DeleteFunc(members, func(rank int32) bool {
		isCompleted := a.completed.Has(rank)
		if isCompleted {
			alone[rank] = true
		}
		return isCompleted
	})
}

// stateOfGroup reports whether any pod of a group was observed, and whether Kueue no longer admits pods
// to it: Kueue evicted it, or all its pods have ended.
func (a *ranked) stateOfGroup(group *v2alpha1.GrowthGroup) (isCreated, isOver bool) {
	isCreated, isOver = group.Created, true
	for _, pod := range a.out.Current() {
		if _, number, grouped := a.facts.groupOf(pod); !grouped || number != group.Number {
			continue
		}
		if _, evicted := queueing.Eviction(pod); evicted {
			return true, true
		}
		isCreated = true
		isOver = isOver && !isInLine(pod)
	}
	return isCreated, isCreated && isOver
}
