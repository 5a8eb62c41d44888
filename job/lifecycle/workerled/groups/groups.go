// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package groups reads in which of Kueue's groups the pods of a worker-led job queue.
package groups

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// A job queues with Kueue through its pods. The pods with which an attempt of a worker-led job
// starts are its first group. Kueue admits, evicts and finishes a group as a whole. It neither
// resizes a group nor reopens a finished one, so each attempt and reschedule has its own groups.
// A recreated pod joins the first group while others of it are active; otherwise it queues by
// itself. Replicas that are added later are groups of their own. A job that started without a queue
// continues without one.

// First is the number of the group of a job's start.
const First = 0

// Of returns the metadata of a pod of a worker-led job, the number of its group, and whether
// the operator created that group.
func Of(job *v2alpha1.DIJob, pod *corev1.Pod) (meta queueing.PodMeta, number int32, grouped bool) {
	meta = queueing.FromPod(pod)
	number, grouped = meta.Number(queueing.StartOf(job, podstate.Attempt(pod), podstate.Reschedule(pod)))
	return meta, number, grouped
}

// InFirst returns the metadata of a pod that is in the first group of its attempt.
func InFirst(job *v2alpha1.DIJob, pod *corev1.Pod) (queueing.PodMeta, bool) {
	meta, number, grouped := Of(job, pod)
	return meta, grouped && number == First
}

// IsGrouped reports whether the pods of a status's attempt are groups that Kueue admits as a
// whole.
func IsGrouped(in *state.Input, status *v2alpha1.DIJobStatus) bool {
	return slices.ContainsFunc(in.Pods, func(pod *corev1.Pod) bool {
		_, _, grouped := Of(in.Job, pod)
		return grouped && !state.IsStale(pod, status)
	})
}

// A queued job that grows keeps its first group. The added replicas are another group, which Kueue
// admits by itself. The status records which rank is in which group before any pod of it is created.
// Otherwise pods that are missing from the cache would get a group of another size. If a group loses
// some of its ranks, is evicted or has finished, the rest of it becomes a new group. A single
// replica queues by itself, and so does one that must hand over its state before it leaves.

// Growth is a parsed record of the replicas that were added to a queued job.
type Growth struct {
	// Record is nil if there is none.
	Record *v2alpha1.QueuedGrowth
	// Groups are the ranks of each recorded group.
	Groups []ranks.Set
	Alone  ranks.Set
}

// Parse returns recorded replicas that were added to a queued job.
func Parse(record *v2alpha1.QueuedGrowth) Growth {
	if record == nil {
		return Growth{}
	}
	parsed := Growth{Record: record, Alone: ranks.Read(record.Alone)}
	for i := range record.Groups[:min(len(record.Groups), limits.GrowthGroups)] {
		parsed.Groups = append(parsed.Groups, ranks.Read(record.Groups[i].Ranks))
	}
	return parsed
}

// Read returns the recorded growth of a status's attempt.
func Read(job *v2alpha1.DIJob, status *v2alpha1.DIJobStatus) Growth {
	scaling := job.Status.Scaling
	if scaling == nil || scaling.Growth == nil || scaling.Growth.Start != StartOf(job, status) {
		return Growth{}
	}
	return Parse(scaling.Growth)
}

// StartOf returns the name of the first group of a status's attempt.
func StartOf(job *v2alpha1.DIJob, status *v2alpha1.DIJobStatus) string {
	return queueing.StartOf(job, status.Restarts, status.Reschedules).GroupName(First)
}

// Group returns the place of a rank's group among the recorded ones, -1 if it is in none.
func (g *Growth) Group(rank int32) int {
	return slices.IndexFunc(g.Groups, func(members ranks.Set) bool { return members.Has(rank) })
}

// Number returns the number of a rank's group, 0 if it is in none.
func (g *Growth) Number(rank int32) int32 {
	if at := g.Group(rank); at >= 0 {
		return g.Record.Groups[at].Number
	}
	return First
}

// Has reports whether a rank was added.
func (g *Growth) Has(rank int32) bool {
	return g.Alone.Has(rank) || g.Group(rank) >= 0
}

// Count counts the added ranks.
func (g *Growth) Count() int32 {
	count := g.Alone.Count()
	for i := range g.Groups {
		count += g.Groups[i].Count()
	}
	return count
}
