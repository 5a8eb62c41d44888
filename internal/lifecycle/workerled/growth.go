// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// A queued job that grows keeps its first group. The added replicas are another group, which Kueue
// admits by itself. The status records which rank is in which group before any pod of it is created.
// Otherwise pods that are missing from the cache would get a group of another size. If a group loses
// some of its ranks, is evicted or has finished, the rest of it becomes a new group. A single
// replica queues by itself, and so does one that must hand over its state before it leaves.

// growth is a parsed record of the replicas that were added to a queued job.
type growth struct {
	// record is nil if there is none.
	record *v2alpha1.QueuedGrowth
	// groups are the ranks of each recorded group.
	groups []ranks.Set
	alone  ranks.Set
}

func parseGrowth(record *v2alpha1.QueuedGrowth) growth {
	if record == nil {
		return growth{}
	}
	parsed := growth{record: record, alone: ranks.Read(record.Alone)}
	for i := range record.Groups[:min(len(record.Groups), limits.GrowthGroups)] {
		parsed.groups = append(parsed.groups, ranks.Read(record.Groups[i].Ranks))
	}
	return parsed
}

// readGrowth returns the recorded growth of a status's attempt.
func (f *facts) readGrowth(status *v2alpha1.DIJobStatus) growth {
	scaling := f.in.Job.Status.Scaling
	if scaling == nil || scaling.Growth == nil || scaling.Growth.Start != f.startOf(status) {
		return growth{}
	}
	return parseGrowth(scaling.Growth)
}

// startOf returns the name of the first group of a status's attempt.
func (f *facts) startOf(status *v2alpha1.DIJobStatus) string {
	return queueing.PodGroupName(f.in.Job, status.Restarts, status.Reschedules, firstGroup)
}

// group returns the place of a rank's group among the recorded ones, -1 if it is in none.
func (g *growth) group(rank int32) int {
	return slices.IndexFunc(g.groups, func(members ranks.Set) bool { return members.Has(rank) })
}

// number returns the number of a rank's group, 0 if it is in none.
func (g *growth) number(rank int32) int32 {
	if at := g.group(rank); at >= 0 {
		return g.record.Groups[at].Number
	}
	return firstGroup
}

// has reports whether a rank was added.
func (g *growth) has(rank int32) bool {
	return g.alone.Has(rank) || g.group(rank) >= 0
}

// count counts the added ranks.
func (g *growth) count() int32 {
	count := g.alone.Count()
	for i := range g.groups {
		count += g.groups[i].Count()
	}
	return count
}

// startSize returns with how many replicas the job started, as recorded.
func (f *facts) startSize() int32 {
	if before := f.in.Job.Status.Scaling; before != nil {
		return before.LastReplicas - f.grown.count()
	}
	return f.counts.Total
}

// changesFirstGroup reports whether a resize needs another first group: Kueue has not admitted the
// present one, or it has replicas that the job no longer desires.
func (f *facts) changesFirstGroup(status *v2alpha1.DIJobStatus) bool {
	if len(f.resizes) == 0 || !f.isGrouped(status) {
		return false
	}
	isAdmitted := slices.ContainsFunc(f.in.Pods, func(pod *corev1.Pod) bool {
		_, isFirst := f.inFirstGroup(pod)
		return isFirst && !state.IsStale(pod, status) && !queueing.IsWaiting(pod)
	})
	before := f.in.Job.Status.Scaling
	if before == nil || !isAdmitted {
		return true
	}
	grown := f.readGrowth(status)
	for task, run := range ranks.Former(f.in.Job, before) {
		kept := f.keptRanks(task, run)
		if slices.ContainsFunc(ranks.ReadRun(run), func(rank int32) bool { return !kept[rank] && !grown.has(rank) }) {
			return true
		}
	}
	return false
}

// keptRanks returns which of a task's recorded ranks belong to replicas that the job still desires.
func (f *facts) keptRanks(task, run string) map[int32]bool {
	kept := map[int32]bool{}
	recorded := ranks.ReadRecorded(f.in.Job.Status.Scaling, task, run)
	for i := range f.in.Job.Spec.Tasks[:len(f.indexes)] {
		if names.TaskName(&f.in.Job.Spec.Tasks[i]) != task {
			continue
		}
		for _, index := range f.indexes[i] {
			kept[recorded.Rank(index)] = true
		}
	}
	return kept
}

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

// formerTasks returns the task of each recorded rank.
func (f *facts) formerTasks() map[int32]string {
	tasks := map[int32]string{}
	for task, run := range ranks.Former(f.in.Job, f.in.Job.Status.Scaling) {
		for _, rank := range ranks.ReadRun(run) {
			tasks[rank] = task
		}
	}
	return tasks
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

// isGrowthUnrecorded reports whether groups are not recorded yet. Their pods are created after that.
func (s *staffing) isGrowthUnrecorded() bool {
	var before *v2alpha1.QueuedGrowth
	if scaling := s.in.Job.Status.Scaling; scaling != nil {
		before = scaling.Growth
	}
	return !equality.Semantic.DeepEqual(before, s.ranked.growth.record)
}

// isOfFormerGroup reports whether the pod of an added replica is in another group than the replica. Kueue
// would admit the replica's group only with a pod for each of its replicas, and keeps the quota of the other.
func (s *staffing) isOfFormerGroup(replica *workload.Replica, pod *corev1.Pod) bool {
	_, number, grouped := s.facts.groupOf(pod)
	return grouped && s.ranked.growth.has(replica.Rank) && number != s.ranked.growth.number(replica.Rank)
}

// isOfRecordedGrowth reports whether the group of a pod is among those that were added.
func (p *Plan) isOfRecordedGrowth(pod *corev1.Pod) bool {
	_, number, grouped := p.facts.groupOf(pod)
	return grouped && p.facts.grown.record != nil && slices.ContainsFunc(p.facts.grown.record.Groups, func(group v2alpha1.GrowthGroup) bool {
		return group.Number == number
	})
}

// addedMeta returns Kueue's metadata for the pod of an added replica. It queues where the others do.
func (s *staffing) addedMeta(rank int32) queueing.PodMeta {
	meta := s.in.Queued()
	if members := s.out.Current(); len(members) > 0 {
		meta = queueing.FromPod(members[0]).Ungrouped()
	}
	at := s.ranked.growth.group(rank)
	if at < 0 {
		return meta.Ungrouped()
	}
	return meta.Added(s.in.Job, s.ranked.assignment.Attempt, s.ranked.assignment.Reschedule, s.ranked.growth.record.Groups[at].Number, int(s.ranked.growth.groups[at].Count()))
}
