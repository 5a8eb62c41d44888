// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// Before returns the recorded ranks. There is no record of ranks in the order of the spec. If the
// counts changed then, Before writes out that order, because a resize may come while no pod records
// its rank. A job that is placed again starts in the order of the spec, because the allocation is
// by rank.
func Before(job *v2alpha1.DIJob, now *v2alpha1.ScalingStatus) map[string]string {
	before := job.Status.Scaling
	if before == nil || before.LastAllocation != now.LastAllocation && now.LastAllocation != "" {
		return nil
	}
	if before.LastReplicas == now.LastReplicas && maps.Equal(before.SpecReplicas, now.SpecReplicas) {
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
	var recorded []int32
	for i := range replicas {
		replica := &replicas[i]
		if isInOrder {
			ranks[i] = int32(i)
			continue
		}
		if i == 0 || replica.Task != replicas[i-1].Task {
			recorded = ReadRun(status.Scaling.Ranks[names.TaskName(&job.Spec.Tasks[replica.Task])])
		}
		ranks[i] = podstate.Unranked
		if int(replica.Index) < len(recorded) && (!isStart || int(recorded[replica.Index]) < len(replicas)) {
			ranks[i] = recorded[replica.Index]
		}
	}
	return ranks
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
