// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
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

// exclusions are the nodes that jobs are not placed on, with the time at which that ends. The placement
// considers resources, taints and node affinity. The scheduler may have other reasons not to run a pod
// on its node, such as pod affinity, host ports or volumes.
//
// They are in memory: a new leader excludes a node again after its pod was unschedulable for
// unschedulableGrace.
type exclusions map[types.UID]map[string]time.Time

// update adds the nodes where pods of a job are unschedulable. It returns all excluded nodes of the job.
func (e exclusions) update(job *v2alpha1.DIJob, pods []*corev1.Pod, terminating map[string]bool, now time.Time) map[string]bool {
	excluded := e[job.UID]
	maps.DeleteFunc(excluded, func(_ string, until time.Time) bool { return !now.Before(until) })
	for _, pod := range pods {
		node := waitsFor(job, pod)
		_, known := excluded[node]
		// A pod may wait until the pods that still terminate on its node are gone.
		if node == "" || terminating[node] || !isUnschedulable(pod, now) || !known && len(excluded) >= maxExcluded {
			continue
		}
		if excluded == nil {
			excluded = map[string]time.Time{}
			e[job.UID] = excluded
		}
		excluded[node] = now.Add(excludedFor)
	}
	all := make(map[string]bool, len(excluded))
	for node := range excluded {
		all[node] = true
	}
	return all
}

// exclude updates the exclusions of a job, and excludes their nodes in the round.
func (r *round) exclude(e exclusions, job *v2alpha1.DIJob, pods []*corev1.Pod, terminating map[string]bool, now time.Time) {
	if wanted := r.wanted[client.ObjectKeyFromObject(job)]; wanted != nil {
		maps.Copy(wanted.Excluded, e.update(job, pods, terminating, now))
	}
}

// forget drops the exclusions of jobs that are not in the round.
func (e exclusions) forget(jobs []*v2alpha1.DIJob) {
	current := make(map[types.UID]bool, len(jobs))
	for _, job := range jobs {
		current[job.UID] = true
	}
	maps.DeleteFunc(e, func(uid types.UID, _ map[string]time.Time) bool { return !current[uid] })
}

// isUnschedulable reports whether the scheduler has not found a node for a pod for unschedulableGrace.
func isUnschedulable(pod *corev1.Pod, now time.Time) bool {
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	return scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable &&
		now.Sub(scheduled.LastTransitionTime.Time) > unschedulableGrace
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

// runningRanks returns the nodes on which pods run, by rank.
func runningRanks(pods []*corev1.Pod) map[int]string {
	running := map[int]string{}
	for _, pod := range pods {
		if rank := podstate.Rank(pod); rank >= 0 && podstate.Active(pod) && pod.Spec.NodeName != "" {
			running[int(rank)] = pod.Spec.NodeName
		}
	}
	return running
}

// podsOf returns the pods of a task.
func podsOf(task *v2alpha1.Task, pods []*corev1.Pod) []*corev1.Pod {
	name := names.TaskName(task)
	var found []*corev1.Pod
	for _, pod := range pods {
		if pod.Labels[names.LabelTaskName] == name {
			found = append(found, pod)
		}
	}
	return found
}

// waitingFor returns how long a job has been without a placement.
func waitingFor(job *v2alpha1.DIJob, now time.Time) time.Duration {
	allocated := conditions.Find(&job.Status, v2alpha1.ConditionAllocated)
	switch {
	case len(job.Status.Allocation) > 0:
		return 0
	case allocated == nil || allocated.LastTransitionTime == nil:
		return now.Sub(job.CreationTimestamp.Time)
	}
	return now.Sub(allocated.LastTransitionTime.Time)
}
