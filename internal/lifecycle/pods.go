// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

func isTerminating(pod *corev1.Pod) bool {
	return !pod.DeletionTimestamp.IsZero()
}

// isEnded tells whether no container of the pod will run again.
func isEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// isOutlived tells whether a worker's pod has ended but for containers that
// admission added, which nobody ends: all that it was made with have ended, and
// are not started again.
func isOutlived(pod *corev1.Pod) bool {
	own := names.OwnContainers(pod)
	return len(own) > 0 && len(own) < len(pod.Spec.Containers) && pod.Status.Phase == corev1.PodRunning &&
		pod.Spec.RestartPolicy == corev1.RestartPolicyNever &&
		!slices.ContainsFunc(own, func(name string) bool { return terminationOf(pod, name) == nil })
}

// terminationOf returns how a container of a pod has ended, nil while it has not.
func terminationOf(pod *corev1.Pod, container string) *corev1.ContainerStateTerminated {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == container {
			return status.State.Terminated
		}
	}
	return nil
}

// withEnds returns workers' pods as Kubernetes would show them without the
// containers that admission added: those that these outlive have ended.
func withEnds(pods []*corev1.Pod) []*corev1.Pod {
	var seen []*corev1.Pod
	for i, pod := range pods {
		if !isOutlived(pod) {
			continue
		}
		if seen == nil {
			seen = slices.Clone(pods)
		}
		ended := *pod
		ended.Status.Phase = corev1.PodSucceeded
		if slices.ContainsFunc(names.OwnContainers(pod), func(name string) bool { return terminationOf(pod, name).ExitCode != 0 }) {
			ended.Status.Phase = corev1.PodFailed
		}
		seen[i] = &ended
	}
	if seen == nil {
		return pods
	}
	return seen
}

// holdsOn tells of a pod that has succeeded, as withEnds returns it, whether it
// keeps what it has of its node, as a container of it goes on.
func holdsOn(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded &&
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool { return status.State.Terminated == nil })
}

func isReady(pod *corev1.Pod) bool {
	return !isTerminating(pod) && IsReady(pod)
}

// IsReady tells whether a pod says that it is ready. One that runs on a node
// which does not say so of pods is by its containers, as for v1.1.3.
func IsReady(pod *corev1.Pod) bool {
	if ready := podCondition(pod, corev1.PodReady); ready != nil {
		return ready.Status == corev1.ConditionTrue
	}
	containers := pod.Status.ContainerStatuses
	return pod.Status.Phase == corev1.PodRunning && len(containers) > 0 &&
		!slices.ContainsFunc(containers, func(container corev1.ContainerStatus) bool { return !container.Ready })
}

// isOver tells whether a pod has failed, or was lost sight of by its node, which
// counts as much.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodUnknown
}

// isBlameless tells whether a failed pod failed by what befell it and not by
// what it ran: it is made again and not counted.
func isBlameless(pod *corev1.Pod) bool {
	return isTerminating(pod) || befell(pod) != ""
}

// isLooping tells whether a container of the pod has terminated or waits to be
// started again after that: what it said is in its logs.
func isLooping(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		return status.State.Terminated != nil ||
			status.State.Waiting != nil && status.State.Waiting.Reason == "CrashLoopBackOff"
	})
}

// mainTermination returns how the main container of a pod has ended, nil while
// it has not.
func mainTermination(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if main := membership.MainContainer(pod); main != nil {
		return main.State.Terminated
	}
	return nil
}

// endTime returns when the last container of the pod ended; where that is not
// told, as of one that never ran, when the pod was made.
func endTime(pod *corev1.Pod) time.Time {
	end := pod.CreationTimestamp.Time
	for i := range pod.Status.ContainerStatuses {
		if ended := pod.Status.ContainerStatuses[i].State.Terminated; ended != nil && ended.FinishedAt.After(end) {
			end = ended.FinishedAt.Time
		}
	}
	return end
}

// phaseOf returns the phase of a pod; one that no kubelet has seen yet is pending.
func phaseOf(pod *corev1.Pod) corev1.PodPhase {
	return cmp.Or(pod.Status.Phase, corev1.PodPending)
}

// attemptOf returns the count of restarts that the pod was created with.
func attemptOf(pod *corev1.Pod) int32 {
	return annotatedNumber(pod, names.AnnotationAttempt, 0)
}

// believed returns the count of a pod's annotation, and 0, as where there is none, for
// one that is too far ahead of the recorded one to come from this operator.
func believed(count, recorded int32) int32 {
	if count > limits.Sum(recorded, limits.RestartsAhead) {
		return 0
	}
	return count
}

// rankOf returns the rank that a pod was created with, unranked where it says none
// that a job can have.
func rankOf(pod *corev1.Pod) int32 {
	if rank := annotatedNumber(pod, names.AnnotationRank, unranked); rank < limits.Replicas {
		return rank
	}
	return unranked
}

func annotatedNumber(pod *corev1.Pod, annotation string, otherwise int32) int32 {
	value, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	if err != nil || value < 0 {
		return otherwise
	}
	return int32(value)
}
