// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// Condition is a condition of a job, also in words.
type Condition struct {
	Type            string
	Status          corev1.ConditionStatus
	Reason, Message string
	Since           *time.Time
	// Text is the condition as a sentence.
	Text string
	// IsTrouble is set if the condition explains why the job does not run as desired.
	IsTrouble bool
}

// trouble is a status of a condition that explains why a job does not run as desired.
type trouble struct {
	kind   string
	status corev1.ConditionStatus
	// blocks is set if the job does not run while the condition lasts, needsUser if a user must act to end it.
	blocks, needsUser bool
}

// troubles are all of them, those that block a job first, the most fundamental first.
var troubles = []trouble{
	{kind: v2alpha1.ConditionInvalidSpec, status: corev1.ConditionTrue, blocks: true, needsUser: true},
	{kind: v2alpha1.ConditionNameConflict, status: corev1.ConditionTrue, blocks: true, needsUser: true},
	{kind: v2alpha1.ConditionReplicaFailure, status: corev1.ConditionTrue, blocks: true, needsUser: true},
	{kind: v2alpha1.ConditionAggregatorConfigMissing, status: corev1.ConditionTrue, blocks: true, needsUser: true},
	{kind: v2alpha1.ConditionAllocated, status: corev1.ConditionFalse, blocks: true},
	{kind: v2alpha1.ConditionAdmitted, status: corev1.ConditionFalse, blocks: true},
	{kind: v2alpha1.ConditionGangScheduled, status: corev1.ConditionFalse, blocks: true},
	{kind: v2alpha1.ConditionReplicasStalled, status: corev1.ConditionTrue, blocks: true, needsUser: true},
	{kind: v2alpha1.ConditionDrainFailed, status: corev1.ConditionTrue, needsUser: true},
	{kind: v2alpha1.ConditionSuspended, status: corev1.ConditionTrue},
	{kind: v2alpha1.ConditionTerminating, status: corev1.ConditionTrue},
	{kind: v2alpha1.ConditionReplicasNotReady, status: corev1.ConditionTrue},
	{kind: v2alpha1.ConditionReplicasDisrupted, status: corev1.ConditionTrue},
	{kind: v2alpha1.ConditionPodsForceDeleted, status: corev1.ConditionTrue},
	{kind: v2alpha1.ConditionPodsChanged, status: corev1.ConditionTrue},
	{kind: v2alpha1.ConditionAutoscaling, status: corev1.ConditionFalse},
	{kind: string(v2alpha1.JobFailed), status: corev1.ConditionTrue},
}

// conditionsOf returns the conditions of a job, those that explain trouble first.
func conditionsOf(job *v2alpha1.DIJob) []Condition {
	all := make([]Condition, 0, len(job.Status.Conditions))
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		all = append(all, Condition{
			Type: condition.Type, Status: condition.Status, Reason: condition.Reason, Message: condition.Message,
			Since: timeOf(condition.LastTransitionTime), Text: sentence(condition), IsTrouble: isTrouble(condition),
		})
	}
	slices.SortStableFunc(all, func(a, b Condition) int { return rank(a.IsTrouble) - rank(b.IsTrouble) })
	return all
}

func rank(isTrouble bool) int {
	if isTrouble {
		return 0
	}
	return 1
}

// sentence returns a condition as a sentence.
func sentence(condition *v2alpha1.DIJobCondition) string {
	message := condition.Message
	if message == "" && condition.Reason != "" && condition.Reason != condition.Type {
		message = condition.Reason
	}
	state := map[corev1.ConditionStatus]string{corev1.ConditionTrue: "", corev1.ConditionFalse: "not ", corev1.ConditionUnknown: "perhaps "}[condition.Status]
	return strings.TrimSuffix(state+condition.Type+": "+message, ": ")
}

// isTrouble reports whether a condition explains why a job does not run as desired.
func isTrouble(condition *v2alpha1.DIJobCondition) bool {
	return slices.ContainsFunc(troubles, func(one trouble) bool { return one.kind == condition.Type && one.status == condition.Status })
}

// troublesOf returns the troubles that a job has, and their conditions, in the order of the list above.
func troublesOf(job *v2alpha1.DIJob) (found []trouble, as []*v2alpha1.DIJobCondition) {
	for _, one := range troubles {
		if condition := conditions.Find(&job.Status, one.kind); condition != nil && condition.Status == one.status {
			found, as = append(found, one), append(as, condition)
		}
	}
	return found, as
}

// blocking returns the conditions that keep a job from running, the most fundamental first.
func blocking(job *v2alpha1.DIJob) []*v2alpha1.DIJobCondition {
	var blocking []*v2alpha1.DIJobCondition
	found, as := troublesOf(job)
	for i := range found {
		if found[i].blocks {
			blocking = append(blocking, as[i])
		}
	}
	return blocking
}

// IsStuck reports whether a user must act before a job makes progress.
func IsStuck(job *v2alpha1.DIJob) bool {
	if replicas.IsFinished(job) || ptr.Deref(job.Spec.Suspend, false) {
		return false
	}
	found, _ := troublesOf(job)
	return slices.ContainsFunc(found, func(one trouble) bool { return one.needsUser })
}
