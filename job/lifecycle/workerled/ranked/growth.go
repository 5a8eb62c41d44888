// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ranked

import (
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/groups"
	"opendilab.org/di-orchestrator/job/queueing"
)

// recordGrowth records in which groups the added replicas queue, and returns them.
func (r *Replicas) recordGrowth() groups.Growth {
	if r.out.Status().Scaling == nil || state.IsSuspended(r.in.Job) || state.IsFinished(&r.in.Job.Status) {
		return groups.Growth{}
	}
	scaling, before := r.out.Scaling(), groups.Read(r.in.Job, r.out.Status())
	scaling.Growth = nil
	if r.in.Job.Status.Scaling != nil && (before.Record != nil || groups.IsGrouped(r.in, r.out.Status())) {
		scaling.Growth = r.nextGrowth(&before)
	}
	r.out.RecordScaling(&scaling)
	return groups.Parse(scaling.Growth)
}

// nextGrowth returns the groups of the desired replicas, nil if none was ever added.
func (r *Replicas) nextGrowth(before *groups.Growth) *v2alpha1.QueuedGrowth {
	next := &nextGrowth{QueuedGrowth: v2alpha1.QueuedGrowth{Start: groups.StartOf(r.in.Job, r.out.Status())}, alone: map[int32]bool{}}
	members, added := make([][]int32, len(before.Groups)), []int32(nil)
	former := r.facts.FormerTasks()
	for i := range r.Assignment.Replicas {
		replica := &r.Assignment.Replicas[i]
		task := &r.in.Job.Spec.Tasks[replica.Task]
		isNew, at := former[replica.Rank] != names.TaskName(task), before.Group(replica.Rank)
		switch {
		case isNew && task.Drain == nil:
			added = append(added, replica.Rank)
		case isNew || before.Alone.Has(replica.Rank):
			next.alone[replica.Rank] = true
		case at >= 0:
			members[at] = append(members[at], replica.Rank)
		}
	}
	if before.Record != nil {
		next.Last = before.Record.Last
	}
	for at := range before.Groups {
		group := before.Record.Groups[at]
		isCreated, isOver := r.stateOfGroup(&group)
		if isOver || len(members[at]) != int(before.Groups[at].Count()) {
			next.add(r.withoutCompleted(members[at], next.alone))
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
func (r *Replicas) withoutCompleted(members []int32, alone map[int32]bool) []int32 {
	return slices.DeleteFunc(members, func(rank int32) bool {
		isCompleted := r.Completed.Has(rank)
		if isCompleted {
			alone[rank] = true
		}
		return isCompleted
	})
}

// stateOfGroup reports whether any pod of a group was observed, and whether Kueue no longer admits pods
// to it: Kueue evicted it, or all its pods have ended.
func (r *Replicas) stateOfGroup(group *v2alpha1.GrowthGroup) (isCreated, isOver bool) {
	isCreated, isOver = group.Created, true
	for _, pod := range r.out.Current() {
		if _, number, grouped := groups.Of(r.in.Job, pod); !grouped || number != group.Number {
			continue
		}
		if _, evicted := queueing.Eviction(pod); evicted {
			return true, true
		}
		isCreated = true
		isOver = isOver && !groups.IsInLine(pod)
	}
	return isCreated, isCreated && isOver
}
