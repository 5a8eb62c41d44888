// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podstate reads facts from the status of one pod: whether it is ready,
// terminating or finished, what disrupted it, how it failed, and which problems
// keep it from running. It is pure: times are compared with a time that is given.
package podstate

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
)

// Terminating reports whether the pod is being deleted.
func Terminating(pod *corev1.Pod) bool {
	return !pod.DeletionTimestamp.IsZero()
}

// Finished reports whether no container of the pod will run again.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Active reports whether the pod is neither terminating nor finished.
func Active(pod *corev1.Pod) bool {
	return !Terminating(pod) && !Finished(pod)
}

// Ready reports whether the pod is ready and not terminating.
func Ready(pod *corev1.Pod) bool {
	return !Terminating(pod) && ReportsReady(pod)
}

// ReportsReady reports whether the pod's status reports the pod as ready. Some nodes do not set the
// condition Ready. Its containers decide then, as in v1.1.3.
func ReportsReady(pod *corev1.Pod) bool {
	if ready := conditions.OfPod(pod, corev1.PodReady); ready != nil {
		return ready.Status == corev1.ConditionTrue
	}
	containers := pod.Status.ContainerStatuses
	return pod.Status.Phase == corev1.PodRunning && len(containers) > 0 &&
		!slices.ContainsFunc(containers, func(container corev1.ContainerStatus) bool { return !container.Ready })
}

// FailedOrLost reports whether the pod failed, or its node lost contact with it. Both count as a
// failure.
func FailedOrLost(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodUnknown
}

// Phase returns the phase of the pod. A pod that no kubelet has started yet is pending.
func Phase(pod *corev1.Pod) corev1.PodPhase {
	return cmp.Or(pod.Status.Phase, corev1.PodPending)
}

// FinishTime returns when the last container of the pod terminated. Without any
// such time, as in a pod that never ran, it is the pod's creation time.
func FinishTime(pod *corev1.Pod) time.Time {
	finish := pod.CreationTimestamp.Time
	for i := range pod.Status.ContainerStatuses {
		if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil && end.FinishedAt.After(finish) {
			finish = end.FinishedAt.Time
		}
	}
	return finish
}

// MainContainer returns the status of the container that runs the training program, nil if there is
// none. It is the one that the pod records as its main container, else the one with the known name.
// Otherwise it is the one named after the pod's role, else the only one. For a pod of a worker-led
// job it is then the first.
func MainContainer(pod *corev1.Pod) *corev1.ContainerStatus {
	if own := names.OwnContainers(pod); len(own) > 0 {
		return statusOf(pod, own[0])
	}
	statuses, role := pod.Status.ContainerStatuses, names.RoleOf(pod)
	main := statusOf(pod, names.Container)
	switch {
	case main != nil:
		return main
	case role != "":
		main = statusOf(pod, string(role))
	case len(pod.Spec.Containers) > 0:
		main = statusOf(pod, pod.Spec.Containers[0].Name)
	}
	if main == nil && len(statuses) == 1 {
		return &statuses[0]
	}
	return main
}

// MainTermination returns how the pod's main container terminated, nil if it has not.
func MainTermination(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if main := MainContainer(pod); main != nil {
		return main.State.Terminated
	}
	return nil
}

// LastTermination returns how the pod's main container last terminated, nil if it has not. The kubelet may
// have restarted it since.
func LastTermination(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	main := MainContainer(pod)
	if main != nil && main.State.Terminated == nil {
		return main.LastTerminationState.Terminated
	}
	return MainTermination(pod)
}

// OutOfMemory reports whether the kernel killed the pod's main container because it used more memory
// than its limit. Exit code 137 alone is any SIGKILL.
func OutOfMemory(pod *corev1.Pod) bool {
	end := MainTermination(pod)
	return end != nil && end.Reason == v2alpha1.ReasonOOMKilled
}

// roundedCPU is how many thousandths of a core the kubelet may round off.
const roundedCPU = 10

// IsResized reports whether the node has applied the CPU and memory in the spec of the pod's main
// container, and no resize is pending or in progress.
func IsResized(pod *corev1.Pod) bool {
	main, spec := MainContainer(pod), names.MainContainerOf(pod)
	if conditions.IsTrueOfPod(pod, corev1.PodResizePending) || conditions.IsTrueOfPod(pod, corev1.PodResizeInProgress) {
		return false
	}
	return main != nil && main.Resources != nil &&
		isApplied(main.Resources.Requests, spec.Resources.Requests) && isApplied(main.Resources.Limits, spec.Resources.Limits)
}

func isApplied(applied, wanted corev1.ResourceList) bool {
	cpu, memory := wanted.Cpu(), wanted.Memory()
	off := applied.Cpu().MilliValue() - cpu.MilliValue()
	return (cpu.IsZero() || max(off, -off) <= roundedCPU) && (memory.IsZero() || applied.Memory().Cmp(*memory) == 0)
}

// ContainerExited reports whether a container of the pod has terminated, or waits in
// CrashLoopBackOff after that. Its logs then contain the program's output.
func ContainerExited(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		return status.State.Terminated != nil ||
			status.State.Waiting != nil && status.State.Waiting.Reason == CrashLoopBackOff
	})
}

// terminationOf returns how a container of the pod terminated, nil if it has not.
func terminationOf(pod *corev1.Pod, container string) *corev1.ContainerStateTerminated {
	if status := statusOf(pod, container); status != nil {
		return status.State.Terminated
	}
	return nil
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}
