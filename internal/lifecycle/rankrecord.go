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

// recordRanks writes who has which rank: a replica keeps its rank though all pods
// are gone at once, as they are between two attempts, and recorded ranks that have
// succeeded stay those of the same replicas. The ranks of a single task that are in
// order need no record; those of several do, as a user may change the order of the
// tasks. While there is no pod and is to be none the record stays.
func (p *plan) recordRanks() {
	scaling := p.status().Scaling
	if scaling == nil || len(p.Pods) == 0 && (IsSuspended(p.Job) || isUnplaced(p.Job)) {
		return
	}
	scaling.Ranks = nil
	if seats := p.roster.Seats; isInOrder(seats) && (len(seats) == 0 || seats[0].Task == seats[len(seats)-1].Task) {
		return
	}
	byTask := map[string][]int32{}
	for i := range p.roster.Seats {
		seat := &p.roster.Seats[i]
		task := names.TaskName(&p.Job.Spec.Tasks[seat.Task])
		byTask[task] = append(byTask[task], seat.Rank)
	}
	scaling.Ranks = make(map[string]string, len(byTask))
	for task, ranks := range byTask {
		scaling.Ranks[task] = formatRun(ranks)
	}
}

// isAnyMoved reports whether a replica without a pod has another rank than the recorded
// one. The new rank is recorded before a pod is made: a pass that makes only some of
// the pods, and no record, leaves the next pass two truths.
func (p *plan) isAnyMoved() bool {
	before := p.Job.Status.Scaling
	if before == nil || len(before.Ranks) == 0 {
		return false
	}
	recorded := make([][]int32, len(p.Job.Spec.Tasks))
	for i := range recorded {
		recorded[i] = readRun(before.Ranks[names.TaskName(&p.Job.Spec.Tasks[i])])
	}
	return slices.ContainsFunc(p.roster.Seats, func(seat workload.Seat) bool {
		ranks := recorded[seat.Task]
		return p.pods[seat.Pod] == nil && int(seat.Index) < len(ranks) && ranks[seat.Index] != seat.Rank
	})
}

// ranksBefore returns the recorded ranks. Where none are as they were in the
// order of the spec, and the counts are others now, it writes out that order: a
// resize may come when no pod tells of its rank. What is placed again starts in
// the order of the spec, as the allocation is by rank.
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

// formerRanks returns the recorded ranks, written out also where they are those
// in the order of the spec.
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

// isOthersSuccess reports whether a rank that is recorded to have succeeded is
// another replica's in the order of the spec, in which ranks start where a job is
// placed.
func (in *input) isOthersSuccess() bool {
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

// isInOrder reports whether seats have the ranks that they get where nothing is known.
func isInOrder(seats []workload.Seat) bool {
	for i := range seats {
		if seats[i].Rank != int32(i) {
			return false
		}
	}
	return true
}

// recordedRanks returns the ranks that seats have by the record, and those only
// that an attempt which starts can have: its ranks are dense, and of a job that
// was placed those that the allocator reckoned with.
func recordedRanks(job *v2alpha1.DIJob, status *v2alpha1.DIJobStatus, seats []workload.Seat, pods map[string]*corev1.Pod) []int32 {
	if job.Status.Scaling == nil {
		return nil
	}
	ranks := make([]int32, len(seats))
	isStart := len(pods) == 0 && status.CompletedRanks == ""
	isInOrder := len(status.Scaling.Ranks) == 0 || isStart && job.Spec.Preemptible
	var recorded []int32
	for i := range seats {
		seat := &seats[i]
		if isInOrder {
			ranks[i] = int32(i)
			continue
		}
		if i == 0 || seat.Task != seats[i-1].Task {
			recorded = readRun(status.Scaling.Ranks[names.TaskName(&job.Spec.Tasks[seat.Task])])
		}
		ranks[i] = unranked
		if int(seat.Index) < len(recorded) && (!isStart || int(recorded[seat.Index]) < len(seats)) {
			ranks[i] = recorded[seat.Index]
		}
	}
	return ranks
}

// formatRun writes ranks in their order, and what counts up as a range, "1-2,4,3".
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

// readRun reads what formatRun wrote; nothing where it reads as something else, which
// somebody else wrote.
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

// hasAnothersRank reports whether a pod was made with a rank that is another's by
// now. It happens where a resize follows so soon on another that the cache does
// not know yet whom that made.
func hasAnothersRank(seat *workload.Seat, pod *corev1.Pod) bool {
	rank := rankOf(pod)
	return rank != unranked && rank != seat.Rank
}
