// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/podstate"
)

const (
	// unschedulableGrace is how long a placed pod may be unschedulable before its node is excluded.
	unschedulableGrace = 2 * time.Minute
	// excludedFor is how long a job is not placed on a node where its pod was unschedulable.
	excludedFor = 30 * time.Minute
	// maxExcluded is the maximum number of excluded nodes of a job. Each exclusion restarts the job. A
	// pod that is unschedulable on so many nodes may be so on all: its job keeps its placement, and
	// condition ReplicasStalled reports the pod.
	maxExcluded = 8
)

// exclusions are the nodes that jobs are not placed on. The placement considers resources, taints and node affinity.
// The scheduler may have other reasons not to run a pod on its node, such as pod affinity, host ports or volumes.
//
// They are in memory: a new leader excludes a node again after its pod was unschedulable for
// unschedulableGrace.
type exclusions map[types.UID]excludedNodes

// excludedNodes are the excluded nodes of a job, with the time at which that ends.
type excludedNodes map[string]time.Time

// next returns the excluded nodes of a job, with those for which its stuck pods wait.
func (e excludedNodes) next(job *v2alpha1.DIJob, stuck []*corev1.Pod, terminating map[string]bool, now time.Time) excludedNodes {
	excluded := make(excludedNodes, len(e))
	for node, until := range e {
		if now.Before(until) {
			excluded[node] = until
		}
	}
	for _, pod := range stuck {
		node := waitsFor(job, pod)
		_, known := excluded[node]
		// A pod may wait until the pods that still terminate on its node are gone.
		if node == "" || terminating[node] || !known && len(excluded) >= maxExcluded {
			continue
		}
		excluded[node] = now.Add(excludedFor)
	}
	return excluded
}

// stuckPods returns the pods for which the scheduler has not found a node for unschedulableGrace.
func stuckPods(pods []*corev1.Pod, before, after Memory, now time.Time) []*corev1.Pod {
	var stuck []*corev1.Pod
	for _, pod := range pods {
		scheduled := conditions.OfPod(pod, corev1.PodScheduled)
		if scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason != corev1.PodReasonUnschedulable {
			continue
		}
		if before.unschedulable.observe(pod.UID, scheduled.LastTransitionTime.Time, now, after.unschedulable) > unschedulableGrace {
			stuck = append(stuck, pod)
		}
	}
	return stuck
}

// waitsFor returns the node of its placement that a pod waits for, "" if it does not wait.
func waitsFor(job *v2alpha1.DIJob, pod *corev1.Pod) string {
	node := placements.PlacedOn(pod)
	if pod.Spec.NodeName != "" || !podstate.Active(pod) || !slices.Contains(job.Status.Allocation, node) {
		return ""
	}
	return node
}

// closedNodes returns the nodes of its placement that pods of a job wait for although they take no pods.
func closedNodes(job *v2alpha1.DIJob, pods []*corev1.Pod, snapshot *allocation.Snapshot) map[string]bool {
	closed := map[string]bool{}
	for _, pod := range pods {
		if node := waitsFor(job, pod); node != "" && snapshot.IsClosed(node) {
			closed[node] = true
		}
	}
	return closed
}

// nodesOfTerminating returns the nodes on which pods of the jobs terminate.
func nodesOfTerminating(pods map[types.UID][]*corev1.Pod) map[string]bool {
	nodes := map[string]bool{}
	for _, ofJob := range pods {
		for _, pod := range ofJob {
			if podstate.Terminating(pod) && !podstate.Finished(pod) {
				nodes[pod.Spec.NodeName] = true
			}
		}
	}
	return nodes
}
