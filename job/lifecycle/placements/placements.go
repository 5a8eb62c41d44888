// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placements reads the placements of worker-led jobs: who needs one, which nodes and ranks it has, and which
// pods were created for it.
package placements

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// WantsPlace reports whether the allocator must place a job.
func WantsPlace(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && !state.IsCoordinatorLed(job) && !state.IsLeftAlone(job) && !state.IsFinished(&job.Status) && !state.IsSuspended(job)
}

// LeavesPlace reports whether a job must give up its placement.
func LeavesPlace(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && !state.IsCoordinatorLed(job) && !state.IsLeftAlone(job) && !state.IsFinished(&job.Status) &&
		state.IsSuspended(job) && len(job.Status.Allocation) > 0
}

// NodesByRank returns the nodes, by rank, of a job that was never placed; "" is a rank without a
// pod. There are no nodes if the job does not run or its pods do not record their ranks. Nothing is
// known while a pod has no node yet.
func NodesByRank(job *v2alpha1.DIJob, pods []*corev1.Pod) (nodes []string, known bool) {
	total := sizing.Wanted(job).Total
	if total > limits.Replicas {
		return nil, true
	}
	nodes = make([]string, total)
	live := false
	for _, pod := range pods {
		if podstate.Terminating(pod) || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		rank := podstate.Rank(pod)
		switch {
		case pod.Spec.NodeName == "":
			return nil, false
		case rank < 0 || int(rank) >= len(nodes) || nodes[rank] != "":
			return nil, true
		}
		nodes[rank] = pod.Spec.NodeName
		live = live || !podstate.Finished(pod)
	}
	if !live {
		return nil, true
	}
	return nodes, true
}

// EndedRanks returns the ranks of a job that have succeeded in its current placement: the recorded
// ones, and those whose pods have succeeded. Recorded ranks of an earlier placement do not count.
func EndedRanks(job *v2alpha1.DIJob, pods []*corev1.Pod) map[int]bool {
	status := &job.Status
	if scaling := status.Scaling; scaling != nil && scaling.LastAllocation != "" && scaling.LastAllocation != DigestOf(status.Allocation) {
		return nil
	}
	ended := map[int]bool{}
	if completed := ranks.Read(status.CompletedRanks); !completed.IsEmpty() {
		for rank := range min(max(len(status.Allocation), int(sizing.Wanted(job).Total)), limits.Replicas) {
			if completed.Has(int32(rank)) {
				ended[rank] = true
			}
		}
	}
	for _, pod := range podstate.IgnoreInjected(pods) {
		_, taken := pod.Annotations[names.AnnotationAttempt]
		isCurrent := !taken || podstate.Attempt(pod) >= status.Restarts && podstate.Reschedule(pod) >= status.Reschedules
		if pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod) && isCurrent {
			ended[int(podstate.Rank(pod))] = true
		}
	}
	return ended
}

// ReadySince returns when the last replica of a job's current placement became ready. It returns false
// while a replica is missing or not ready. A replica that has succeeded counts as ready.
func ReadySince(job *v2alpha1.DIJob, pods []*corev1.Pod) (since time.Time, ready bool) {
	count := 0
	for _, pod := range CurrentPods(job, pods) {
		condition := conditions.OfPod(pod, corev1.PodReady)
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			count++
		case condition != nil && condition.Status == corev1.ConditionTrue:
			count++
			if condition.LastTransitionTime.After(since) {
				since = condition.LastTransitionTime.Time
			}
		}
	}
	return since, count > 0 && count >= len(job.Status.Allocation)
}

// CurrentPods returns the pods that were created for a job's current placement, and no pod before the
// operator has acted on that placement.
func CurrentPods(job *v2alpha1.DIJob, pods []*corev1.Pod) []*corev1.Pod {
	status := &job.Status
	if status.Scaling == nil || len(status.Allocation) == 0 || status.Scaling.LastAllocation != DigestOf(status.Allocation) {
		return nil
	}
	var current []*corev1.Pod
	for _, pod := range podstate.IgnoreInjected(pods) {
		if podstate.Attempt(pod) >= status.Restarts && podstate.Reschedule(pod) >= status.Reschedules && !podstate.Terminating(pod) {
			current = append(current, pod)
		}
	}
	return current
}

// PlacedOn returns the node that a pod was created for, "" for none.
func PlacedOn(pod *corev1.Pod) string {
	return pod.Annotations[names.AnnotationNode]
}

// DigestOf returns a digest of an allocation, "" for none.
func DigestOf(allocation []string) string {
	if len(allocation) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(allocation, ",")))
	return hex.EncodeToString(sum[:8])
}

// IsElsewhere reports whether a pod is on another node than the allocation gives its
// rank, or was created for another node.
func IsElsewhere(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	rank, allocation := podstate.Rank(pod), job.Status.Allocation
	return rank < 0 || int(rank) >= len(allocation) || allocation[rank] != cmp.Or(pod.Spec.NodeName, PlacedOn(pod))
}
