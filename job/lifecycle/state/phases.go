// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// ConditionOf returns the type of a phase's condition. Coordinator-led jobs keep
// v1alpha1's types: Created is a job that does not run yet.
func ConditionOf(phase v2alpha1.Phase, coordinatorLed bool) string {
	if coordinatorLed && (phase == v2alpha1.JobPending || phase == v2alpha1.JobStarting) {
		return v2alpha1.ConditionCreated
	}
	return string(phase)
}

// ReasonOf returns the reason of a phase's condition and event.
func ReasonOf(phase v2alpha1.Phase, coordinatorLed bool) string {
	if coordinatorLed {
		return "DIJob" + ConditionOf(phase, coordinatorLed)
	}
	return "Job" + string(phase)
}

// isIn reports whether the job is in a phase already, by its condition as well.
func isIn(status *v2alpha1.DIJobStatus, phase v2alpha1.Phase, kind string) bool {
	return status.Phase == phase && conditions.IsTrue(status, kind)
}

// closePhases sets the conditions of all phases but one to False, without the messages of when they
// were True. Earlier releases left both as they were.
func closePhases(status *v2alpha1.DIJobStatus, but string, now time.Time) {
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if condition.Type != but && isPhase(condition.Type) {
			conditions.SetStatus(condition, corev1.ConditionFalse, now)
			condition.Message = ""
		}
	}
}

// isPhase reports whether a condition is named after a phase.
func isPhase(condition string) bool {
	return slices.Contains([]v2alpha1.Phase{
		v2alpha1.JobPending, v2alpha1.ConditionCreated, v2alpha1.JobStarting, v2alpha1.JobRestarting,
		v2alpha1.JobRescheduling, v2alpha1.JobRunning, v2alpha1.JobSucceeded, v2alpha1.JobFailed, v2alpha1.JobUnknown,
	}, v2alpha1.Phase(condition))
}

// IsFinished reports whether a status records the end of the job. In a status that this operator
// has not written yet, the phase counts as well, as in earlier releases.
func IsFinished(status *v2alpha1.DIJobStatus) bool {
	return EndOfJob(status) != nil || status.ObservedGeneration == 0 && isEnd(status.Phase)
}

// EndOfJob returns the condition that records the end of the job, nil for none.
func EndOfJob(status *v2alpha1.DIJobStatus) *v2alpha1.DIJobCondition {
	for _, phase := range []v2alpha1.Phase{v2alpha1.JobSucceeded, v2alpha1.JobFailed} {
		if end := conditions.Find(status, string(phase)); end != nil && end.Status == corev1.ConditionTrue {
			return end
		}
	}
	return nil
}

func isEnd(phase v2alpha1.Phase) bool {
	return phase == v2alpha1.JobSucceeded || phase == v2alpha1.JobFailed
}

// HasRun reports whether a status records that the job runs, or ever did.
func HasRun(status *v2alpha1.DIJobStatus) bool {
	return conditions.Find(status, string(v2alpha1.JobRunning)) != nil
}
