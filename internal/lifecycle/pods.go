// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

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

func isReady(pod *corev1.Pod) bool {
	return !isTerminating(pod) && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// isBlameless tells whether a failed pod failed by what befell it and not by
// what it ran: it is made again and not counted.
func isBlameless(pod *corev1.Pod) bool {
	if isTerminating(pod) {
		return true
	}
	reason := pod.Status.Reason
	if reason == "UnexpectedAdmissionError" || reason == "Evicted" || strings.HasPrefix(strings.ToLower(reason), "outof") {
		return true
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
	})
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

// endTime returns when the last container of the pod ended; the zero time
// where that is not told.
func endTime(pod *corev1.Pod) time.Time {
	var end time.Time
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

func annotatedNumber(pod *corev1.Pod, annotation string, otherwise int32) int32 {
	value, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	if err != nil || value < 0 {
		return otherwise
	}
	return int32(value)
}
