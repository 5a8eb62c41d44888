// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// conditionOf returns the type of a phase's condition. Coordinator-led jobs keep
// v1alpha1's words, which call Created what has not come to run yet.
func conditionOf(phase v2alpha1.Phase, coordinatorLed bool) string {
	if coordinatorLed && (phase == v2alpha1.JobPending || phase == v2alpha1.JobStarting) {
		return v2alpha1.ConditionCreated
	}
	return string(phase)
}

// reasonOf returns the reason of a phase's condition and event.
func reasonOf(phase v2alpha1.Phase, coordinatorLed bool) string {
	if coordinatorLed {
		return "DIJob" + conditionOf(phase, coordinatorLed)
	}
	return "Job" + string(phase)
}

// isIn tells whether a phase, by its condition, is the job's already.
func isIn(status *v2alpha1.DIJobStatus, phase v2alpha1.Phase, kind string) bool {
	return status.Phase == phase && isTrue(status, kind)
}

// closePhases turns the conditions of the phases but one to False, which earlier
// releases left as they were.
func closePhases(status *v2alpha1.DIJobStatus, but string, now metav1.Time) {
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if condition.Type != but && isPhase(condition.Type) {
			turn(condition, corev1.ConditionFalse, now)
		}
	}
}

// isPhase tells the conditions that are named after a phase from the others.
func isPhase(condition string) bool {
	return slices.Contains([]v2alpha1.Phase{
		v2alpha1.JobPending, v2alpha1.ConditionCreated, v2alpha1.JobStarting, v2alpha1.JobRestarting,
		v2alpha1.JobRescheduling, v2alpha1.JobRunning, v2alpha1.JobSucceeded, v2alpha1.JobFailed, v2alpha1.JobUnknown,
	}, v2alpha1.Phase(condition))
}

// setCondition writes one condition and tells whether it changed.
func setCondition(status *v2alpha1.DIJobStatus, kind string, value corev1.ConditionStatus, reason, message string, now metav1.Time) bool {
	condition := findCondition(status, kind)
	if condition == nil {
		status.Conditions = append(status.Conditions, v2alpha1.DIJobCondition{Type: kind})
		condition = &status.Conditions[len(status.Conditions)-1]
	}
	if condition.Status == value && condition.Reason == reason && condition.Message == message {
		return false
	}
	turn(condition, value, now)
	condition.Reason, condition.Message, condition.LastUpdateTime = reason, message, &now
	return true
}

// clearCondition turns a complaint to False where it was ever made. It keeps
// no reason: tables show a condition's reason whatever its status is.
func clearCondition(status *v2alpha1.DIJobStatus, kind string, now metav1.Time) {
	if condition := findCondition(status, kind); condition != nil {
		turn(condition, corev1.ConditionFalse, now)
		condition.Reason, condition.Message = "", ""
	}
}

// turn sets a condition's status. Only a change moves its times.
func turn(condition *v2alpha1.DIJobCondition, value corev1.ConditionStatus, now metav1.Time) {
	if condition.Status == value {
		return
	}
	condition.Status, condition.LastUpdateTime, condition.LastTransitionTime = value, &now, &now
}

func findCondition(status *v2alpha1.DIJobStatus, kind string) *v2alpha1.DIJobCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

func isTrue(status *v2alpha1.DIJobStatus, kind string) bool {
	condition := findCondition(status, kind)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// IsFinished tells whether a status records the end of the job. In one that this
// operator has not written yet the phase does, too, which earlier releases go by.
func IsFinished(status *v2alpha1.DIJobStatus) bool {
	return endOfJob(status) != nil || status.ObservedGeneration == 0 && isEnd(status.Phase)
}

// endOfJob returns the condition that records the end of the job, nil for none.
func endOfJob(status *v2alpha1.DIJobStatus) *v2alpha1.DIJobCondition {
	for _, phase := range []v2alpha1.Phase{v2alpha1.JobSucceeded, v2alpha1.JobFailed} {
		if end := findCondition(status, string(phase)); end != nil && end.Status == corev1.ConditionTrue {
			return end
		}
	}
	return nil
}

func isEnd(phase v2alpha1.Phase) bool {
	return phase == v2alpha1.JobSucceeded || phase == v2alpha1.JobFailed
}

// HasRun tells whether a status records that the job runs, or ever did.
func HasRun(status *v2alpha1.DIJobStatus) bool {
	return findCondition(status, string(v2alpha1.JobRunning)) != nil
}

// Complain says in a status, by a condition, what only acting could tell; an
// empty message says that there is nothing to complain of. It tells whether
// that is news to complain of.
func Complain(status *v2alpha1.DIJobStatus, condition, reason, message string, at time.Time) bool {
	now := metav1.NewTime(at.Truncate(time.Second))
	if message == "" {
		clearCondition(status, condition, now)
		return false
	}
	return setCondition(status, condition, corev1.ConditionTrue, reason, message, now)
}

// Tell sets a condition that is no phase, and tells whether that changed it.
func Tell(status *v2alpha1.DIJobStatus, condition string, value corev1.ConditionStatus, reason, message string, at time.Time) bool {
	return setCondition(status, condition, value, reason, message, metav1.NewTime(at.Truncate(time.Second)))
}
