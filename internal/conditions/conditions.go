// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions reads and writes the conditions of a DIJob's status, and reads
// those of pods and nodes. None of these types is metav1.Condition, which
// k8s.io/apimachinery/pkg/api/meta serves.
package conditions

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Find returns a job's condition of the type, and nil if it has none.
func Find(status *v2alpha1.DIJobStatus, kind string) *v2alpha1.DIJobCondition {
	return first(status.Conditions, func(condition *v2alpha1.DIJobCondition) bool { return condition.Type == kind })
}

// IsTrue reports whether a job's condition of the type is True.
func IsTrue(status *v2alpha1.DIJobStatus, kind string) bool {
	condition := Find(status, kind)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// Set writes one condition and reports whether it changed.
func Set(status *v2alpha1.DIJobStatus, kind string, value corev1.ConditionStatus, reason, message string, now time.Time) bool {
	condition := Find(status, kind)
	if condition == nil {
		status.Conditions = append(status.Conditions, v2alpha1.DIJobCondition{Type: kind})
		condition = &status.Conditions[len(status.Conditions)-1]
	}
	if condition.Status == value && condition.Reason == reason && condition.Message == message {
		return false
	}
	SetStatus(condition, value, now)
	condition.Reason, condition.Message, condition.LastUpdateTime = reason, message, timeOf(now)
	return true
}

// SetStatus changes only the status of a condition. It updates the times only if the status
// changes.
func SetStatus(condition *v2alpha1.DIJobCondition, value corev1.ConditionStatus, now time.Time) {
	if condition.Status == value {
		return
	}
	condition.Status, condition.LastUpdateTime, condition.LastTransitionTime = value, timeOf(now), timeOf(now)
}

// Clear sets a condition to False if it was ever set. It removes the reason,
// because tables show the reason of a condition with any status.
func Clear(status *v2alpha1.DIJobStatus, kind string, now time.Time) {
	if condition := Find(status, kind); condition != nil {
		SetStatus(condition, corev1.ConditionFalse, now)
		condition.Reason, condition.Message = "", ""
	}
}

// Remove removes a job's condition of the type.
func Remove(status *v2alpha1.DIJobStatus, kind string) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(condition v2alpha1.DIJobCondition) bool { return condition.Type == kind })
}

// Report sets a condition that describes a problem to True, or clears it if the
// message is empty. It reports whether the problem is new or different.
func Report(status *v2alpha1.DIJobStatus, kind, reason, message string, now time.Time) bool {
	if message == "" {
		Clear(status, kind, now)
		return false
	}
	return Set(status, kind, corev1.ConditionTrue, reason, message, now)
}

// OfPod returns a pod's condition of the type, and nil if it has none.
func OfPod(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	return first(pod.Status.Conditions, func(condition *corev1.PodCondition) bool { return condition.Type == kind })
}

// IsTrueOfPod reports whether a pod's condition of the type is True.
func IsTrueOfPod(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	condition := OfPod(pod, kind)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// OfNode returns a node's condition of the type, and nil if it has none.
func OfNode(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	return first(node.Status.Conditions, func(condition *corev1.NodeCondition) bool { return condition.Type == kind })
}

// IsNodeReady reports whether a node's condition Ready is True.
func IsNodeReady(node *corev1.Node) bool {
	ready := OfNode(node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// first returns the first condition that matches, and nil if none does.
func first[C any](list []C, matches func(*C) bool) *C {
	for i := range list {
		if matches(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// timeOf returns a time as a status stores it, in seconds. Each field gets its own copy.
func timeOf(now time.Time) *metav1.Time {
	stored := metav1.NewTime(now.Truncate(time.Second))
	return &stored
}
