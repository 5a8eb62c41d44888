// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Before returns the recorded ranks. There is no record of ranks in the order of the spec. If the
// counts or the indexes changed then, Before writes out that order, because a resize may come while no pod records
// its rank. A job that is placed again starts in the order of the spec, because the allocation is
// by rank.
func Before(job *v2alpha1.DIJob, now *v2alpha1.ScalingStatus, isReindexed bool) map[string]string {
	before := job.Status.Scaling
	if before == nil || before.LastAllocation != now.LastAllocation && now.LastAllocation != "" {
		return nil
	}
	if before.LastReplicas == now.LastReplicas && maps.Equal(before.SpecReplicas, now.SpecReplicas) && !isReindexed {
		return before.Ranks
	}
	return Former(job, before)
}

// Former returns the recorded ranks, written out even if they are in the order of the spec.
func Former(job *v2alpha1.DIJob, before *v2alpha1.ScalingStatus) map[string]string {
	if len(before.Ranks) > 0 {
		return before.Ranks
	}
	elastic, rest := names.ElasticTask(&job.Spec), before.LastReplicas
	for _, count := range before.SpecReplicas {
		rest -= count
	}
	ranks := map[string]string{}
	var first int32
	for i := range job.Spec.Tasks {
		task := names.TaskName(&job.Spec.Tasks[i])
		count := before.SpecReplicas[task]
		if i == elastic {
			count += rest
		}
		if count > 0 {
			ranks[task] = formatRange(first, first+count-1)
			first += count
		}
	}
	return ranks
}

// IsInOrder reports whether replicas have the ranks that they get by default.
func IsInOrder(replicas []workload.Replica) bool {
	for i := range replicas {
		if replicas[i].Rank != int32(i) {
			return false
		}
	}
	return true
}

// recordedRanks returns the recorded ranks of replicas, limited to those that a new attempt allows:
// its ranks are dense, and a placed job has the ranks that the allocator assumes.
func recordedRanks(job *v2alpha1.DIJob, status *v2alpha1.DIJobStatus, replicas []workload.Replica, pods map[string]*corev1.Pod) []int32 {
	if job.Status.Scaling == nil {
		return nil
	}
	ranks := make([]int32, len(replicas))
	isStart := len(pods) == 0 && status.CompletedRanks == ""
	isInOrder := len(status.Scaling.Ranks) == 0 || isStart && job.Spec.Preemptible
	var recorded Recorded
	for i := range replicas {
		replica := &replicas[i]
		if isInOrder {
			ranks[i] = int32(i)
			continue
		}
		if i == 0 || replica.Task != replicas[i-1].Task {
			task := names.TaskName(&job.Spec.Tasks[replica.Task])
			recorded = ReadRecorded(job.Status.Scaling, task, status.Scaling.Ranks[task])
		}
		if ranks[i] = recorded.Rank(replica.Index); isStart && int(ranks[i]) >= len(replicas) {
			ranks[i] = podstate.Unranked
		}
	}
	return ranks
}

// Recorded are the recorded ranks of one task's replicas.
type Recorded struct {
	// indexes are the indexes of the replicas, nil if they have no gaps. ranks are in the same order.
	indexes, ranks []int32
}

// ReadRecorded reads the ranks of a task's replicas, which had the indexes of a record.
func ReadRecorded(record *v2alpha1.ScalingStatus, task, ranks string) Recorded {
	return Recorded{indexes: readIndexes(recordedIndexes(record, task)), ranks: ReadRun(ranks)}
}

// Rank returns the recorded rank of a replica, podstate.Unranked if there is none.
func (r Recorded) Rank(index int32) int32 {
	at, found := int(index), true
	if r.indexes != nil {
		at, found = slices.BinarySearch(r.indexes, index)
	}
	if !found || at >= len(r.ranks) {
		return podstate.Unranked
	}
	return r.ranks[at]
}

// Record returns the ranks of replicas by task.
func Record(job *v2alpha1.DIJob, replicas []workload.Replica) map[string]string {
	byTask := map[string][]int32{}
	for i := range replicas {
		task := names.TaskName(&job.Spec.Tasks[replicas[i].Task])
		byTask[task] = append(byTask[task], replicas[i].Rank)
	}
	record := make(map[string]string, len(byTask))
	for task, run := range byTask {
		record[task] = FormatRun(run)
	}
	return record
}

// IsCompletedByOther reports whether a completed rank belongs to another replica in the order of
// the spec.
func IsCompletedByOther(job *v2alpha1.DIJob, completed *Set, byTask []int32) bool {
	former := Former(job, job.Status.Scaling)
	var first int32
	for i, count := range byTask {
		run := ReadRun(former[names.TaskName(&job.Spec.Tasks[i])])
		for index := range count {
			isSame := int(index) < len(run) && run[index] == first+index
			if completed.Has(first+index) && !isSame {
				return true
			}
		}
		first += count
	}
	return false
}
