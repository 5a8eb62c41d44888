// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// state is the state of a container, from its pod's status.
type state struct {
	// instance is the run of the container whose log is had now; empty for none.
	instance string
	// previous is the run before it; empty where none is known.
	previous string
	// isRunning tells that the instance runs.
	isRunning bool
	// isOver tells that no run follows the instance.
	isOver bool
	// isGone tells that the pod is gone.
	isGone bool
	// restarts is how often the container was started again.
	restarts int32
	// waiting is what it waits for.
	waiting string
}

// stateOf returns the state of a pod's container.
func stateOf(pod *corev1.Pod, container string) state {
	isOver := podstate.Finished(pod)
	status := statusOf(pod, container)
	if status == nil {
		return state{isOver: isOver, waiting: waitingOf(pod)}
	}
	last := runOf(status.LastTerminationState.Terminated, status.RestartCount-1)
	now := state{isOver: isOver, restarts: status.RestartCount, previous: last}
	switch {
	case status.State.Running != nil:
		now.isRunning = !isOver
		now.instance = cmp.Or(status.ContainerID, fmt.Sprint("#", status.RestartCount))
	case status.State.Terminated != nil:
		now.instance = runOf(status.State.Terminated, status.RestartCount)
		now.isOver = isOver || !isStartedAgain(pod, container, status.State.Terminated.ExitCode)
	default:
		// The kubelet answers with the last run's log until the next one starts.
		now.instance, now.previous = last, ""
		now.waiting = describeWaiting(status.State.Waiting)
	}
	return now
}

func runOf(ended *corev1.ContainerStateTerminated, count int32) string {
	if ended == nil {
		return ""
	}
	return cmp.Or(ended.ContainerID, fmt.Sprint("#", count))
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, all := range [][]corev1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		if at := slices.IndexFunc(all, func(status corev1.ContainerStatus) bool { return status.Name == container }); at >= 0 {
			return &all[at]
		}
	}
	return nil
}

// isStartedAgain reports whether the kubelet starts a container again that ended.
func isStartedAgain(pod *corev1.Pod, container string, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	for i := range pod.Spec.InitContainers {
		if own := pod.Spec.InitContainers[i].RestartPolicy; pod.Spec.InitContainers[i].Name == container {
			return own != nil && *own == corev1.ContainerRestartPolicyAlways || exitCode != 0 && policy != corev1.RestartPolicyNever
		}
	}
	for i := range pod.Spec.Containers {
		// A container's own policy may have rules; the pod's phase tells then.
		if pod.Spec.Containers[i].Name == container && pod.Spec.Containers[i].RestartPolicy != nil {
			return true
		}
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	case corev1.RestartPolicyAlways:
	}
	return true
}

func describeWaiting(waiting *corev1.ContainerStateWaiting) string {
	switch {
	case waiting == nil || waiting.Reason == "":
		return "waiting to start"
	case waiting.Message == "":
		return waiting.Reason
	}
	return waiting.Reason + ": " + waiting.Message
}

// waitingOf says what a pod without containers waits for.
func waitingOf(pod *corev1.Pod) string {
	if scheduled := conditions.OfPod(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		return scheduled.Reason + ": " + scheduled.Message
	}
	if pod.Spec.NodeName == "" {
		return "waiting for a node"
	}
	return "waiting to start on node " + pod.Spec.NodeName
}
