// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// summarize returns the columns that tables show of a status. It returns the recorded ones of a job
// that finished before.
func summarize(job *v2alpha1.DIJob, status *v2alpha1.DIJobStatus, now time.Time) *v2alpha1.StatusSummary {
	isFinished := state.IsFinished(status)
	if status.Phase == "" || isFinished && state.IsFinished(&job.Status) {
		return job.Status.Summary
	}
	summary := &v2alpha1.StatusSummary{Reason: reasonOf(job, status), Restarts: status.Restarts}
	if !isFinished {
		// A finished job desires no replicas: those that are ready at its end are soon gone.
		// A resize keeps excess replicas for a while.
		summary.Ready = fmt.Sprintf("%d/%d", min(status.ReadyReplicas, status.Replicas), status.Replicas)
	}
	if isFinished && status.CompletionTimestamp != nil {
		summary.Duration = duration.HumanDuration(max(0, status.CompletionTimestamp.Sub(state.ActiveSince(job, now))))
	}
	return summary
}

// noReplicas is the reason of a worker-led job that desires no replicas.
const noReplicas = "NoReplicas"

// obstacles are the conditions that keep a job from running as desired, the most serious first.
// A condition with another status than this is no problem.
var obstacles = []struct {
	kind   string
	status corev1.ConditionStatus
}{
	{v2alpha1.ConditionInvalidSpec, corev1.ConditionTrue},
	{v2alpha1.ConditionReplicaFailure, corev1.ConditionTrue},
	{v2alpha1.ConditionNameConflict, corev1.ConditionTrue},
	{v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue},
	{v2alpha1.ConditionAllocated, corev1.ConditionFalse},
	{v2alpha1.ConditionAdmitted, corev1.ConditionFalse},
	{v2alpha1.ConditionGangScheduled, corev1.ConditionFalse},
	{v2alpha1.ConditionAggregatorConfigMissing, corev1.ConditionTrue},
	{v2alpha1.ConditionDrainFailed, corev1.ConditionTrue},
	{v2alpha1.ConditionDraining, corev1.ConditionTrue},
	{v2alpha1.ConditionReplicasDisrupted, corev1.ConditionTrue},
	{v2alpha1.ConditionReplicasNotReady, corev1.ConditionTrue},
	{v2alpha1.ConditionResizing, corev1.ConditionTrue},
	{v2alpha1.ConditionPodsChanged, corev1.ConditionTrue},
}

// reasonOf returns in one word why a job does not run as desired, or why it failed; "" if neither applies.
func reasonOf(job *v2alpha1.DIJob, status *v2alpha1.DIJobStatus) string {
	lastFailure := ""
	if status.LastFailure != nil {
		lastFailure = status.LastFailure.Reason
	}
	switch {
	case conditions.IsTrue(status, v2alpha1.ConditionTerminating):
		return conditions.Find(status, v2alpha1.ConditionTerminating).Reason
	case status.Phase == v2alpha1.JobSucceeded:
		return ""
	case status.Phase == v2alpha1.JobFailed:
		return lastFailure
	case state.IsSuspended(job):
		return v2alpha1.ConditionSuspended
	}
	for _, problem := range obstacles {
		if problem.kind == v2alpha1.ConditionReplicasNotReady && status.Phase == v2alpha1.JobRestarting {
			// The failure says more than that the failed attempt's pods terminate.
			continue
		}
		// A condition that was cleared has no reason.
		if condition := conditions.Find(status, problem.kind); condition != nil && condition.Status == problem.status && condition.Reason != "" {
			return reasonWord(condition)
		}
	}
	switch {
	case status.Replicas == 0 && !state.IsCoordinatorLed(job):
		return noReplicas
	case status.Phase == v2alpha1.JobRestarting:
		return lastFailure
	}
	return ""
}

// reasonWord returns the reason of a condition, or its type if the reason says less.
func reasonWord(condition *v2alpha1.DIJobCondition) string {
	if condition.Reason == v2alpha1.ReasonResized {
		return condition.Type
	}
	return condition.Reason
}
