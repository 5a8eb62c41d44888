// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ranked

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
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

// add adds a group of ranks, or ranks that queue each by itself.
func (n *nextGrowth) add(members []int32) {
	sequence := queueing.Sequence{Last: n.Last, Groups: len(n.Groups)}
	number := sequence.Add(len(members))
	if number > 0 {
		slices.Sort(members)
		n.Last = sequence.Last
		n.Groups = append(n.Groups, v2alpha1.GrowthGroup{Number: number, Ranks: ranks.FormatRun(members)})
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
// to it.
func (r *Replicas) stateOfGroup(group *v2alpha1.GrowthGroup) (isCreated, isOver bool) {
	return queueing.StateOf(slices.DeleteFunc(r.out.Current(), func(pod *corev1.Pod) bool {
		_, number, grouped := groups.Of(r.in.Job, pod)
		return !grouped || number != group.Number
	}), group.Created)
}
