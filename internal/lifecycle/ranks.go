// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// unranked is a seat that has no rank yet.
const unranked int32 = -1

// seatReplicas gives every wanted replica its rank: the one that its pod has,
// else the one that is recorded, else the one that the other pods were told it
// has, else the lowest that is free. So ranks are dense at the start of an
// attempt, a replica keeps its own as far as that allows, and growth takes the
// ranks that shrinking left.
func seatReplicas(job *v2alpha1.DIJob, byTask []int32, status *v2alpha1.DIJobStatus, pods map[string]*corev1.Pod,
	told func(*corev1.Pod) string) workload.Roster {
	roster := workload.Roster{Attempt: status.Restarts, Reschedule: status.Reschedules}
	for task, count := range byTask {
		name := names.TaskName(&job.Spec.Tasks[task])
		for _, index := range indexesOf(job.Name, name, count, pods) {
			roster.Seats = append(roster.Seats, workload.Seat{
				Task: task, Index: index, Rank: unranked, Pod: names.WorkerPod(job.Name, name, index),
			})
		}
	}
	var known []string
	var recorded []int32
	if isAnyUnseated(roster.Seats, pods) {
		known = rememberedNodes(pods, &roster, told)
		recorded = recordedRanks(job, status, roster.Seats, pods)
	}
	assignRanks(roster.Seats, known, recorded, pods, status.CompletedRanks)
	roster.Nodes = nodesByRank(roster.Seats, known)
	return roster
}

// indexesOf returns the indexes of a task's replicas: from 0 on, but for pods of
// an earlier release that live on beyond the others, as that left gaps when it
// shrank a job: such a pod stays instead of one that is not there.
func indexesOf(job, task string, count int32, pods map[string]*corev1.Pod) []int32 {
	indexes := make([]int32, count)
	for i := range indexes {
		indexes[i] = int32(i)
	}
	beyond := indexesBeyond(job, task, count, pods)
	for i := len(indexes) - 1; i >= 0 && len(beyond) > 0; i-- {
		if pod := pods[names.WorkerPod(job, task, indexes[i])]; pod == nil || podstate.Terminating(pod) {
			indexes[i], beyond = beyond[0], beyond[1:]
		}
	}
	slices.Sort(indexes)
	return indexes
}

// indexesBeyond returns the indexes from count on that live pods of an earlier
// release have.
func indexesBeyond(job, task string, count int32, pods map[string]*corev1.Pod) []int32 {
	var beyond []int32
	for name, pod := range pods {
		index, isOf := indexOf(job, task, name)
		if isOf && index >= count && !podstate.Terminating(pod) && workload.IsOfEarlierRelease(pod) {
			beyond = append(beyond, index)
		}
	}
	slices.Sort(beyond)
	return beyond
}

// indexOf returns the index of the replica that has a pod's name; false where
// that is none of the task's.
func indexOf(job, task, pod string) (int32, bool) {
	number, isOf := strings.CutPrefix(pod, job+"-"+task+"-")
	index, err := strconv.ParseInt(number, 10, 32)
	return int32(index), isOf && err == nil && index >= 0
}

func assignRanks(seats []workload.Seat, known []string, recorded []int32, pods map[string]*corev1.Pod, completed string) {
	taken := make(map[int32]bool, len(seats))
	take := func(seat *workload.Seat, rank int32) {
		if seat.Rank == unranked && rank != unranked && !taken[rank] {
			seat.Rank, taken[rank] = rank, true
		}
	}
	for i := range seats {
		if pod := pods[seats[i].Pod]; pod != nil {
			take(&seats[i], rankOf(pod))
		}
	}
	// A pod that is on its way out keeps its rank until it is gone.
	for _, pod := range pods {
		taken[rankOf(pod)] = true
	}
	for i := range recorded {
		take(&seats[i], recorded[i])
	}
	remembered := firstIndexes(known)
	for i := range seats {
		if rank, found := remembered[seats[i].Pod]; found {
			take(&seats[i], rank)
		}
	}
	var free int32
	succeeded := readRanks(completed)
	for i := range seats {
		for seats[i].Rank == unranked {
			// A rank that has succeeded is not for another replica, which would
			// seem to have succeeded with it.
			if !succeeded.has(free) {
				take(&seats[i], free)
			}
			free++
		}
	}
}

// firstIndexes returns where each text is first.
func firstIndexes(texts []string) map[string]int32 {
	indexes := make(map[string]int32, len(texts))
	for i, text := range texts {
		if _, found := indexes[text]; !found {
			indexes[text] = int32(i)
		}
	}
	return indexes
}

// isAnyUnseated reports whether a seat has no pod that says its rank.
func isAnyUnseated(seats []workload.Seat, pods map[string]*corev1.Pod) bool {
	return slices.ContainsFunc(seats, func(seat workload.Seat) bool {
		pod := pods[seat.Pod]
		return pod == nil || rankOf(pod) == unranked
	})
}

// rememberedNodes returns who had which rank, as the pods of the attempt were
// told when they were created. Of different tellings the youngest is true.
func rememberedNodes(pods map[string]*corev1.Pod, roster *workload.Roster, toldNodes func(*corev1.Pod) string) []string {
	var known []string
	last := ""
	for _, pod := range tellersOf(pods, roster) {
		// Nearly all pods were told the same, which is long: read it once.
		told := toldNodes(pod)
		if told == last {
			continue
		}
		last = told
		if workload.CountNodes(told) > len(known) {
			known = append(known, workload.ReadNodes(told)[len(known):]...)
		}
	}
	return known[:min(len(known), limits.Replicas)]
}

// tellersOf returns the pods of the attempt, those first whose word counts most.
func tellersOf(pods map[string]*corev1.Pod, roster *workload.Roster) []*corev1.Pod {
	var tellers []*corev1.Pod
	replicas := map[*corev1.Pod]int32{}
	for _, pod := range pods {
		if attemptOf(pod) == roster.Attempt && rescheduleOf(pod) == roster.Reschedule {
			tellers = append(tellers, pod)
			replicas[pod] = annotatedNumber(pod, names.AnnotationReplicas, 0)
		}
	}
	slices.SortFunc(tellers, func(a, b *corev1.Pod) int {
		return cmp.Or(
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(replicas[b], replicas[a]),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return tellers
}

// nodesByRank lists the pods by rank, up to the highest rank that is taken.
func nodesByRank(seats []workload.Seat, known []string) []string {
	var length int32
	for i := range seats {
		length = max(length, seats[i].Rank+1)
	}
	nodes := make([]string, length)
	if copy(nodes, known) > 0 {
		forgetMoved(nodes, seats)
	}
	for i := range seats {
		nodes[seats[i].Rank] = seats[i].Pod
	}
	return nodes
}

// forgetMoved takes replicas off the ranks that they have no longer: nobody has two.
func forgetMoved(nodes []string, seats []workload.Seat) {
	ranks := make(map[string]int32, len(seats))
	for i := range seats {
		ranks[seats[i].Pod] = seats[i].Rank
	}
	for rank, name := range nodes {
		if own, isSeated := ranks[name]; isSeated && own != int32(rank) {
			nodes[rank] = ""
		}
	}
}

// formatRanks writes ranks as ranges, "0-3,7".
func formatRanks(ranks map[int32]bool) string {
	sorted := make([]int32, 0, len(ranks))
	for rank := range ranks {
		sorted = append(sorted, rank)
	}
	slices.Sort(sorted)
	return formatRun(sorted)
}

// rankSet holds ranks as ranges, in order and apart.
type rankSet struct {
	// text is what the set was read from.
	text   string
	ranges []rankRange
}

type rankRange struct{ first, last int32 }

// readRanks reads ranges as formatRanks writes them. What does not read as a
// range holds no rank, and nor does what is beyond all ranks that a job can have.
func readRanks(text string) rankSet {
	set := rankSet{text: text}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.ParseInt(first, 10, 32)
		to, errTo := strconv.ParseInt(last, 10, 32)
		if errFrom == nil && errTo == nil && from <= to && from < limits.Replicas {
			set.ranges = append(set.ranges, rankRange{int32(from), int32(min(to, limits.Replicas-1))})
		}
	}
	set.ranges = mergeRanges(set.ranges)
	return set
}

// mergeRanges sorts ranges and joins those that overlap, as others than the
// operator may have written them.
func mergeRanges(ranges []rankRange) []rankRange {
	slices.SortFunc(ranges, func(a, b rankRange) int { return cmp.Compare(a.first, b.first) })
	merged := ranges[:0]
	for _, next := range ranges {
		if end := len(merged) - 1; end >= 0 && next.first <= merged[end].last {
			merged[end].last = max(merged[end].last, next.last)
			continue
		}
		merged = append(merged, next)
	}
	return merged
}

func (s *rankSet) has(rank int32) bool {
	_, found := slices.BinarySearchFunc(s.ranges, rank, func(each rankRange, rank int32) int {
		switch {
		case each.last < rank:
			return -1
		case each.first > rank:
			return 1
		}
		return 0
	})
	return found
}
