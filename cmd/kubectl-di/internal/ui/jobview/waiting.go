// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/remedy"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

// Waiting returns why a job does not run, and what would let it; nil if it runs or has finished.
func Waiting(job *v2alpha1.DIJob, row *api.JobRow) *api.Waiting {
	waiting := remedy.For(job, row.GPUs)
	if waiting == nil {
		return nil
	}
	return &api.Waiting{
		Namespace: job.Namespace, Name: job.Name, GPUs: row.GPUs, Why: short(waiting.Why), Since: timeOf(waiting.Since),
		Remedies: append([]string{}, waiting.Remedies...),
	}
}

// Conditions returns the conditions of a job in words, those that explain trouble first.
func Conditions(job *v2alpha1.DIJob) []api.Condition {
	all := make([]api.Condition, 0, len(job.Status.Conditions))
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		all = append(all, api.Condition{
			Type: condition.Type, Status: string(condition.Status), Reason: condition.Reason, Message: condition.Message,
			Since: timeOf(condition.LastTransitionTime), Text: words(condition), Trouble: isTrouble(condition),
		})
	}
	slices.SortStableFunc(all, func(a, b api.Condition) int {
		switch {
		case a.Trouble == b.Trouble:
			return 0
		case a.Trouble:
			return -1
		}
		return 1
	})
	return all
}

// words returns a condition as a sentence.
func words(condition *v2alpha1.DIJobCondition) string {
	message := condition.Message
	if message == "" && condition.Reason != "" && condition.Reason != condition.Type {
		message = condition.Reason
	}
	state := map[corev1.ConditionStatus]string{corev1.ConditionTrue: "", corev1.ConditionFalse: "not ", corev1.ConditionUnknown: "perhaps "}[condition.Status]
	return strings.TrimSuffix(state+condition.Type+": "+message, ": ")
}

// isTrouble reports whether a condition explains why a job does not run as desired.
func isTrouble(condition *v2alpha1.DIJobCondition) bool {
	switch condition.Type {
	case v2alpha1.ConditionAllocated, v2alpha1.ConditionGangScheduled, v2alpha1.ConditionAutoscaling, v2alpha1.ConditionAdmitted:
		return condition.Status == corev1.ConditionFalse
	case v2alpha1.ConditionAggregatorConfigMissing, v2alpha1.ConditionNameConflict, v2alpha1.ConditionReplicaFailure,
		v2alpha1.ConditionReplicasStalled, v2alpha1.ConditionDrainFailed, v2alpha1.ConditionReplicasDisrupted,
		v2alpha1.ConditionPodsForceDeleted, v2alpha1.ConditionPodsChanged, v2alpha1.ConditionInvalidSpec, string(v2alpha1.JobFailed):
		return condition.Status == corev1.ConditionTrue
	}
	return false
}
