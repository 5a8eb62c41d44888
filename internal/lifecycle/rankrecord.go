// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
)

// recordRanks records which replica has which rank. So a replica keeps its rank even if
// all pods are gone at once, as between two attempts, and completed ranks stay those of
// the same replicas. Ranks in order of a single task need no record; those of several
// tasks do, because a user may reorder the tasks. While there is no pod and none is
// desired the record stays.
func (p *plan) recordRanks() {
	scaling := p.status().Scaling
	if scaling == nil || len(p.Pods) == 0 && (IsSuspended(p.Job) || isUnplaced(p.Job)) {
		return
	}
	scaling.Ranks = nil
	if replicas := p.assignment.Replicas; isInOrder(replicas) && (len(replicas) == 0 || replicas[0].Task == replicas[len(replicas)-1].Task) {
		return
	}
	byTask := map[string][]int32{}
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		task := names.TaskName(&p.Job.Spec.Tasks[replica.Task])
		byTask[task] = append(byTask[task], replica.Rank)
	}
	scaling.Ranks = make(map[string]string, len(byTask))
	for task, ranks := range byTask {
		scaling.Ranks[task] = formatRun(ranks)
	}
}

// isAnyMoved reports whether a replica without a pod has another rank than recorded. The
// new rank is recorded before its pod is created: otherwise a reconcile that creates
// only some of the pods leaves two truths to the next one.
func (p *plan) isAnyMoved() bool {
	before := p.Job.Status.Scaling
	if before == nil || len(before.Ranks) == 0 {
		return false
	}
	recorded := make([][]int32, len(p.Job.Spec.Tasks))
	for i := range recorded {
		recorded[i] = readRun(before.Ranks[names.TaskName(&p.Job.Spec.Tasks[i])])
	}
	return slices.ContainsFunc(p.assignment.Replicas, func(replica workload.Replica) bool {
		ranks := recorded[replica.Task]
		return p.pods[replica.Pod] == nil && int(replica.Index) < len(ranks) && ranks[replica.Index] != replica.Rank
	})
}

// ranksBefore returns the recorded ranks. If none are, because they were in the order of
// the spec, and the counts changed, it writes out that order: a resize may come while no
// pod records its rank. A job that is placed again starts in the order of the spec,
// because the allocation is by rank.
func ranksBefore(job *v2alpha1.DIJob, now *v2alpha1.ScalingStatus) map[string]string {
	before := job.Status.Scaling
	if before == nil || before.LastAllocation != now.LastAllocation && now.LastAllocation != "" {
		return nil
	}
	if before.LastReplicas == now.LastReplicas && maps.Equal(before.SpecReplicas, now.SpecReplicas) {
		return before.Ranks
	}
	return formerRanks(job, before)
}

// formerRanks returns the recorded ranks, also written out if they are in the order of
// the spec.
func formerRanks(job *v2alpha1.DIJob, before *v2alpha1.ScalingStatus) map[string]string {
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

// isCompletedByOther reports whether a completed rank belongs to another replica in the
// order of the spec, in which ranks start when a job is placed.
func (in *input) isCompletedByOther() bool {
	before := in.Job.Status.Scaling
	if before == nil || len(in.recorded.ranges) == 0 {
		return false
	}
	former := formerRanks(in.Job, before)
	var first int32
	for i, count := range in.counts.byTask {
		ranks := readRun(former[names.TaskName(&in.Job.Spec.Tasks[i])])
		for index := range count {
			isSame := int(index) < len(ranks) && ranks[index] == first+index
			if in.recorded.has(first+index) && !isSame {
				return true
			}
		}
		first += count
	}
	return false
}

// isInOrder reports whether replicas have the ranks that they get by default.
func isInOrder(replicas []workload.Replica) bool {
	for i := range replicas {
		if replicas[i].Rank != int32(i) {
			return false
		}
	}
	return true
}

// recordedRanks returns the recorded ranks of replicas, restricted to what a new attempt
// allows: its ranks are dense, and for a placed job those that the allocator assumes.
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
			recorded = readRun(status.Scaling.Ranks[names.TaskName(&job.Spec.Tasks[replica.Task])])
		}
		ranks[i] = unranked
		if int(replica.Index) < len(recorded) && (!isStart || int(recorded[replica.Index]) < len(replicas)) {
			ranks[i] = recorded[replica.Index]
		}
	}
	return ranks
}

// formatRun formats ranks in the given order, with ascending runs as ranges, "1-2,4,3".
func formatRun(ranks []int32) string {
	var ranges []string
	for i := 0; i < len(ranks); {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		ranges = append(ranges, formatRange(ranks[i], ranks[end]))
		i = end + 1
	}
	return strings.Join(ranges, ",")
}

func formatRange(first, last int32) string {
	if first == last {
		return strconv.Itoa(int(first))
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// readRun parses what formatRun returns, and returns nothing for any other text.
func readRun(text string) []int32 {
	if text == "" {
		return nil
	}
	var ranks []int32
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.ParseInt(first, 10, 32)
		to, errTo := strconv.ParseInt(last, 10, 32)
		if errFrom != nil || errTo != nil || from < 0 || to < from || to >= limits.Replicas ||
			int64(len(ranks))+to-from >= limits.Replicas {
			return nil
		}
		for rank := from; rank <= to; rank++ {
			ranks = append(ranks, int32(rank))
		}
	}
	return ranks
}

// hasForeignRank reports whether a pod was created with a rank that another replica has
// by now. That happens if two resizes follow each other so fast that the cache does not
// have the pods of the first yet.
func hasForeignRank(replica *workload.Replica, pod *corev1.Pod) bool {
	rank := rankOf(pod)
	return rank != unranked && rank != replica.Rank
}
