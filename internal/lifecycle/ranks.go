// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
)

// unranked is a seat that has no rank yet.
const unranked int32 = -1

// seatReplicas gives every wanted replica its rank: the one that its pod has,
// else the one that the other pods were told it has, else the lowest that is
// free. So ranks are dense at the start, nobody's changes while any pod lives,
// and growth takes the ranks that shrinking left.
func seatReplicas(job *v2alpha1.DIJob, byTask []int32, status *v2alpha1.DIJobStatus, pods map[string]*corev1.Pod) workload.Roster {
	roster := workload.Roster{Attempt: status.Restarts, Reschedule: status.Reschedules}
	for task, count := range byTask {
		name := names.TaskName(&job.Spec.Tasks[task])
		for index := range count {
			roster.Seats = append(roster.Seats, workload.Seat{
				Task: task, Index: index, Rank: unranked, Pod: names.WorkerPod(job.Name, name, index),
			})
		}
	}
	var known []string
	if isAnyUnseated(roster.Seats, pods) {
		known = rememberedNodes(pods, &roster)
	}
	assignRanks(roster.Seats, known, pods)
	roster.Nodes = nodesByRank(roster.Seats, known)
	return roster
}

func assignRanks(seats []workload.Seat, known []string, pods map[string]*corev1.Pod) {
	taken := make(map[int32]bool, len(seats))
	take := func(seat *workload.Seat, rank int32) {
		if seat.Rank == unranked && rank != unranked && !taken[rank] {
			seat.Rank, taken[rank] = rank, true
		}
	}
	for i := range seats {
		if pod := pods[seats[i].Pod]; pod != nil {
			take(&seats[i], annotatedNumber(pod, names.AnnotationRank, unranked))
		}
	}
	// A pod that is on its way out keeps its rank until it is gone.
	for _, pod := range pods {
		taken[annotatedNumber(pod, names.AnnotationRank, unranked)] = true
	}
	for i := range seats {
		take(&seats[i], int32(slices.Index(known, seats[i].Pod)))
	}
	var free int32
	for i := range seats {
		for seats[i].Rank == unranked {
			take(&seats[i], free)
			free++
		}
	}
}

// isAnyUnseated tells whether a seat has no pod that says its rank.
func isAnyUnseated(seats []workload.Seat, pods map[string]*corev1.Pod) bool {
	return slices.ContainsFunc(seats, func(seat workload.Seat) bool {
		pod := pods[seat.Pod]
		return pod == nil || annotatedNumber(pod, names.AnnotationRank, unranked) == unranked
	})
}

// rememberedNodes returns who had which rank, as the pods of the attempt were
// told when they were created. Of different tellings the youngest is true.
func rememberedNodes(pods map[string]*corev1.Pod, roster *workload.Roster) []string {
	var tellers []*corev1.Pod
	for _, pod := range pods {
		if attemptOf(pod) == roster.Attempt && rescheduleOf(pod) == roster.Reschedule {
			tellers = append(tellers, pod)
		}
	}
	slices.SortFunc(tellers, func(a, b *corev1.Pod) int {
		return cmp.Or(
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(annotatedNumber(b, names.AnnotationReplicas, 0), annotatedNumber(a, names.AnnotationReplicas, 0)),
			cmp.Compare(a.Name, b.Name),
		)
	})
	var known []string
	heard := map[string]bool{}
	for _, pod := range tellers {
		// Nearly all pods were told the same, which is long: read it once.
		told := workload.ToldNodes(pod)
		if heard[told] {
			continue
		}
		heard[told] = true
		nodes := workload.ReadNodes(told)
		known = append(known, nodes[min(len(known), len(nodes)):]...)
	}
	return known
}

// nodesByRank lists the pods by rank, up to the highest rank that is taken.
func nodesByRank(seats []workload.Seat, known []string) []string {
	var length int32
	for i := range seats {
		length = max(length, seats[i].Rank+1)
	}
	nodes := make([]string, length)
	copy(nodes, known)
	for i := range seats {
		nodes[seats[i].Rank] = seats[i].Pod
	}
	return nodes
}

// formatRanks writes ranks as ranges, "0-3,7".
func formatRanks(ranks map[int32]bool) string {
	sorted := make([]int32, 0, len(ranks))
	for rank := range ranks {
		sorted = append(sorted, rank)
	}
	slices.Sort(sorted)
	var ranges []string
	for i := 0; i < len(sorted); {
		end := i
		for end+1 < len(sorted) && sorted[end+1] == sorted[end]+1 {
			end++
		}
		if end == i {
			ranges = append(ranges, strconv.Itoa(int(sorted[i])))
		} else {
			ranges = append(ranges, fmt.Sprintf("%d-%d", sorted[i], sorted[end]))
		}
		i = end + 1
	}
	return strings.Join(ranges, ",")
}

// isRankIn tells whether ranges hold a rank. What does not read as a range holds none.
func isRankIn(rank int32, ranges string) bool {
	for part := range strings.SplitSeq(ranges, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.ParseInt(first, 10, 32)
		to, errTo := strconv.ParseInt(last, 10, 32)
		if errFrom == nil && errTo == nil && int64(rank) >= from && int64(rank) <= to {
			return true
		}
	}
	return false
}
