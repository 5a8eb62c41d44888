// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ranks assigns a rank to each replica of a worker-led job, and reads and writes
// the record of ranks in its status.
package ranks

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// PeersOf returns the list of peers that a pod was created with, "" if it is unknown.
type PeersOf func(*corev1.Pod) string

// Assign assigns a rank to every desired replica, given the indexes of each task's replicas: that of its pod, else the recorded one, else the
// one that peers know, else the lowest free one. So ranks are dense at the start of an attempt.
// Replicas keep their ranks where that is possible, and growth takes the ranks that a shrink left.
func Assign(job *v2alpha1.DIJob, byTask [][]int32, status *v2alpha1.DIJobStatus, pods map[string]*corev1.Pod,
	peers PeersOf) workload.Assignment {
	assignment := workload.Assignment{Attempt: status.Restarts, Reschedule: status.Reschedules}
	for task, indexes := range byTask {
		name := names.TaskName(&job.Spec.Tasks[task])
		for _, index := range indexesOf(job.Name, name, slices.Clone(indexes), pods) {
			assignment.Replicas = append(assignment.Replicas, workload.Replica{
				Task: task, Index: index, Rank: podstate.Unranked, Pod: names.WorkerPod(job.Name, name, index),
			})
		}
	}
	var known []string
	var recorded []int32
	if isAnyUnranked(assignment.Replicas, pods) {
		known = knownPeers(pods, &assignment, peers)
		recorded = recordedRanks(job, status, assignment.Replicas, pods)
	}
	fillRanks(assignment.Replicas, known, recorded, pods, status.CompletedRanks)
	assignment.Nodes = nodesByRank(assignment.Replicas, known)
	return assignment
}

// indexesOf returns the indexes of a task's replicas, given the desired ones. An earlier release left gaps
// when it shrank a job, so its pods may have higher indexes. Such a pod replaces a missing one.
func indexesOf(job, task string, indexes []int32, pods map[string]*corev1.Pod) []int32 {
	beyond := indexesBeyond(job, task, indexes, pods)
	for i := len(indexes) - 1; i >= 0 && len(beyond) > 0; i-- {
		if pod := pods[names.WorkerPod(job, task, indexes[i])]; pod == nil || podstate.Terminating(pod) {
			indexes[i], beyond = beyond[0], beyond[1:]
		}
	}
	slices.Sort(indexes)
	return indexes
}

// indexesBeyond returns the indexes beyond the desired ones of active pods of an earlier release.
func indexesBeyond(job, task string, indexes []int32, pods map[string]*corev1.Pod) []int32 {
	last := podstate.Unranked
	if len(indexes) > 0 {
		last = indexes[len(indexes)-1]
	}
	var beyond []int32
	for name, pod := range pods {
		index, isOf := IndexOf(job, task, name)
		if isOf && index > last && !podstate.Terminating(pod) && workload.IsOfEarlierRelease(pod) {
			beyond = append(beyond, index)
		}
	}
	slices.Sort(beyond)
	return beyond
}

// IndexOf returns the index of the replica that has a pod's name; false if the task has no such
// replica.
func IndexOf(job, task, pod string) (int32, bool) {
	number, isOf := strings.CutPrefix(pod, job+"-"+task+"-")
	index, err := strconv.ParseInt(number, 10, 32)
	return int32(index), isOf && err == nil && index >= 0
}

func fillRanks(replicas []workload.Replica, known []string, recorded []int32, pods map[string]*corev1.Pod, completed string) {
	taken := make(map[int32]bool, len(replicas))
	take := func(replica *workload.Replica, rank int32) {
		if replica.Rank == podstate.Unranked && rank != podstate.Unranked && !taken[rank] {
			replica.Rank, taken[rank] = rank, true
		}
	}
	for i := range replicas {
		if pod := pods[replicas[i].Pod]; pod != nil {
			take(&replicas[i], podstate.Rank(pod))
		}
	}
	// A terminating pod keeps its rank until it is gone.
	for _, pod := range pods {
		taken[podstate.Rank(pod)] = true
	}
	for i := range recorded {
		take(&replicas[i], recorded[i])
	}
	remembered := firstIndexes(known)
	for i := range replicas {
		if rank, found := remembered[replicas[i].Pod]; found {
			take(&replicas[i], rank)
		}
	}
	var free int32
	succeeded := Read(completed)
	for i := range replicas {
		for replicas[i].Rank == podstate.Unranked {
			// A completed rank is not free: another replica with it would seem to have succeeded.
			if !succeeded.Has(free) {
				take(&replicas[i], free)
			}
			free++
		}
	}
}

// firstIndexes returns the first index of each text.
func firstIndexes(texts []string) map[string]int32 {
	indexes := make(map[string]int32, len(texts))
	for i, text := range texts {
		if _, found := indexes[text]; !found {
			indexes[text] = int32(i)
		}
	}
	return indexes
}

// isAnyUnranked reports whether a replica has no pod that records its rank.
func isAnyUnranked(replicas []workload.Replica, pods map[string]*corev1.Pod) bool {
	return slices.ContainsFunc(replicas, func(replica workload.Replica) bool {
		pod := pods[replica.Pod]
		return pod == nil || podstate.Rank(pod) == podstate.Unranked
	})
}

// knownPeers returns which replica had which rank, according to the pods of the attempt. Each pod
// read that at its creation. The youngest pod is right.
func knownPeers(pods map[string]*corev1.Pod, assignment *workload.Assignment, peersOf PeersOf) []string {
	var known []string
	last := ""
	for _, pod := range witnessesOf(pods, assignment) {
		// Nearly all pods have the same long list, so it is parsed once.
		peers := peersOf(pod)
		if peers == last {
			continue
		}
		last = peers
		if workload.CountNodes(peers) > len(known) {
			known = append(known, workload.ReadNodes(peers)[len(known):]...)
		}
	}
	return known[:min(len(known), limits.Replicas)]
}

// witnessesOf returns the pods of the attempt, the most authoritative first.
func witnessesOf(pods map[string]*corev1.Pod, assignment *workload.Assignment) []*corev1.Pod {
	var witnesses []*corev1.Pod
	replicas := map[*corev1.Pod]int32{}
	for _, pod := range pods {
		if podstate.Attempt(pod) == assignment.Attempt && podstate.Reschedule(pod) == assignment.Reschedule {
			witnesses = append(witnesses, pod)
			replicas[pod] = podstate.AnnotatedNumber(pod, names.AnnotationReplicas, 0)
		}
	}
	slices.SortFunc(witnesses, func(a, b *corev1.Pod) int {
		return cmp.Or(
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(replicas[b], replicas[a]),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return witnesses
}

// nodesByRank lists the pods by rank, up to the highest assigned rank.
func nodesByRank(replicas []workload.Replica, known []string) []string {
	var length int32
	for i := range replicas {
		length = max(length, replicas[i].Rank+1)
	}
	nodes := make([]string, length)
	if copy(nodes, known) > 0 {
		forgetMoved(nodes, replicas)
	}
	for i := range replicas {
		nodes[replicas[i].Rank] = replicas[i].Pod
	}
	return nodes
}

// forgetMoved removes replicas from the ranks that they no longer have.
func forgetMoved(nodes []string, replicas []workload.Replica) {
	ranks := make(map[string]int32, len(replicas))
	for i := range replicas {
		ranks[replicas[i].Pod] = replicas[i].Rank
	}
	for rank, name := range nodes {
		if own, isSeated := ranks[name]; isSeated && own != int32(rank) {
			nodes[rank] = ""
		}
	}
}
