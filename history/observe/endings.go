// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/history/record"
)

const (
	outOfMemory = "OOMKilled"
	// killed and terminated are the exit codes after SIGKILL and SIGTERM.
	killed     = 137
	terminated = 143
)

// Ending is the end of one run of a container.
type Ending struct {
	record.Tail
	// Previous is true if the container has run again, or waits for that.
	Previous bool
}

// Endings returns the current and the previous end of each container, without their output. Containers for
// initialization count until another one has run: some are ended with the pod.
func Endings(pod *corev1.Pod) []Ending {
	statuses := pod.Status.ContainerStatuses
	if !hasRun(statuses) {
		statuses = pod.Status.InitContainerStatuses
	}
	var all []Ending
	for i := range statuses {
		status := &statuses[i]
		add := func(end *corev1.ContainerStateTerminated, restarts int32, isPrevious bool) {
			if end == nil {
				return
			}
			all = append(all, Ending{record.Tail{
				PodUID: string(pod.UID), Pod: pod.Name, Container: status.Name, Restarts: max(restarts, 0),
				Ended: utc(end.FinishedAt), ExitCode: end.ExitCode, Reason: end.Reason,
			}, isPrevious})
		}
		before := status.RestartCount - 1
		if status.State.Waiting != nil {
			// The count grows with the next run.
			before = status.RestartCount
		}
		add(status.LastTerminationState.Terminated, before, true)
		add(status.State.Terminated, status.RestartCount, false)
	}
	return all
}

func hasRun(statuses []corev1.ContainerStatus) bool {
	for i := range statuses {
		status := &statuses[i]
		if status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return false
}

// IsBad reports whether the container failed by itself. What a deleted pod is stopped with is no failure.
func (e *Ending) IsBad(pod *corev1.Pod) bool {
	isStopped := !pod.DeletionTimestamp.IsZero() && (e.ExitCode == killed || e.ExitCode == terminated)
	return e.Reason == outOfMemory || e.ExitCode != 0 && !isStopped
}
