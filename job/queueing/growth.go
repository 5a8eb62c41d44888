// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package queueing

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/podstate"
)

// What is added to a job together is a group of its own, which Kueue admits by itself. The status records the
// groups before their pods exist. Otherwise pods that are missing from the cache would get a group of another
// size. A group that Kueue has evicted, or that has finished, never returns: what is left of it is a new group.

// Sequence numbers the groups that are added to a start of a job.
type Sequence struct {
	// Last is the number of the last group.
	Last int32
	// Groups counts the groups.
	Groups int
}

// Add returns the number of the next group, for a number of pods. It returns 0 for a single pod, and for pods of one
// group too many: they queue each by itself.
func (s *Sequence) Add(size int) int32 {
	if size < 2 || s.Groups >= limits.GrowthGroups {
		return 0
	}
	s.Last = limits.Sum(s.Last, 1)
	s.Groups++
	return s.Last
}

// IsInLine reports whether a pod keeps its group unfinished.
func IsInLine(pod *corev1.Pod) bool {
	return !podstate.Finished(pod) && !HasOnlyFinalizer(pod) && !IsAbandoned(pod)
}

// StateOf reports whether any pod of a group was observed, now or before, and whether Kueue no longer admits pods
// to it: Kueue evicted it, or all its pods have ended.
func StateOf(pods []*corev1.Pod, wasCreated bool) (isCreated, isOver bool) {
	isCreated, isOver = wasCreated || len(pods) > 0, true
	for _, pod := range pods {
		if _, evicted := Eviction(pod); evicted {
			return true, true
		}
		isOver = isOver && !IsInLine(pod)
	}
	return isCreated, isCreated && isOver
}

// TakesPlace reports whether a pod takes one of the places of its group. Kueue deletes the pods that are created beyond
// its size. A pod that is deleted takes its place until it has ended, and a succeeded one keeps it.
func TakesPlace(pod *corev1.Pod) bool {
	isUnbound := podstate.Terminating(pod) && pod.Spec.NodeName == "" && podstate.Phase(pod) == corev1.PodPending
	return !isUnbound && pod.Status.Phase != corev1.PodFailed
}
