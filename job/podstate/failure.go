// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// failureLength bounds the message of a recorded failure, in bytes.
const failureLength = 1024

// FailureReason classifies how a pod ended before its work was done: by its
// disruption if there is one, else by the container that failed.
func FailureReason(pod *corev1.Pod) string {
	if disruption := Disruption(pod); disruption != "" {
		return disruption
	}
	end, _ := FailedContainer(pod)
	switch {
	case pod.Status.Phase == corev1.PodUnknown:
		return v2alpha1.ReasonNodeLost
	case pod.Status.Reason == v2alpha1.ReasonDeadlineExceeded:
		return v2alpha1.ReasonDeadlineExceeded
	case IsKilledByProbe(pod):
		return v2alpha1.ReasonProbeFailed
	case end == nil:
		return v2alpha1.ReasonError
	case end.Reason == v2alpha1.ReasonOOMKilled:
		return v2alpha1.ReasonOOMKilled
	case neverRan(end):
		return v2alpha1.ReasonContainerStart
	}
	return v2alpha1.ReasonError
}

// FailedContainer returns how the container that made the pod fail terminated. It is the main
// container, unless only another container has failed, whose name is returned as well. If none has
// failed, it returns the main container's end, which may be nil.
func FailedContainer(pod *corev1.Pod) (end *corev1.ContainerStateTerminated, name string) {
	main := MainTermination(pod)
	if main != nil && main.ExitCode != 0 {
		return main, ""
	}
	for _, group := range []struct {
		kind     string
		statuses []corev1.ContainerStatus
	}{{"init container ", pod.Status.InitContainerStatuses}, {"container ", pod.Status.ContainerStatuses}} {
		for i := range group.statuses {
			if failed := group.statuses[i].State.Terminated; failed != nil && failed.ExitCode != 0 {
				return failed, group.kind + group.statuses[i].Name
			}
		}
	}
	return main, ""
}

// Failure returns the record of how the pod failed.
func Failure(pod *corev1.Pod, now metav1.Time) *v2alpha1.LastFailure {
	failure := &v2alpha1.LastFailure{Pod: pod.Name, Reason: pod.Status.Reason, Message: pod.Status.Message, Time: &now}
	end, name := FailedContainer(pod)
	switch {
	case end != nil && IsKilledByProbe(pod):
		failure.Message = LastLines(failure.Message, end.Message)
	case end != nil:
		failure.Reason = cmp.Or(failure.Reason, end.Reason)
		failure.Message = cmp.Or(failure.Message, end.Message)
	case pod.Status.Phase == corev1.PodUnknown:
		failure.Reason = cmp.Or(failure.Reason, v2alpha1.ReasonNodeLost)
		failure.Message = cmp.Or(failure.Message, "its node is unreachable")
	}
	if name != "" {
		failure.Message = strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", name, exitText(end), failure.Message), ": ")
	} else if end != nil {
		failure.ExitCode = &end.ExitCode
	}
	failure.Message = tail(failure.Message, failureLength)
	return failure
}

// FailureCause describes in parentheses how a worker's pod failed, according to its status.
func FailureCause(pod *corev1.Pod) string {
	end, name := FailedContainer(pod)
	switch {
	case name != "":
		return fmt.Sprintf(" (%s: %s)", name, exitText(end))
	case pod.Status.Reason == evicted, end == nil && pod.Status.Reason != "":
		return fmt.Sprintf(" (%s)", pod.Status.Reason)
	case end == nil && pod.Status.Phase == corev1.PodUnknown:
		return " (" + v2alpha1.ReasonNodeLost + ")"
	case end == nil:
		return ""
	case IsKilledByProbe(pod):
		return fmt.Sprintf(" (exit code %d, %s)", end.ExitCode, pod.Status.Reason)
	case end.Reason == "" || end.Reason == v2alpha1.ReasonError:
		return fmt.Sprintf(" (exit code %d)", end.ExitCode)
	}
	return fmt.Sprintf(" (exit code %d, %s)", end.ExitCode, end.Reason)
}
