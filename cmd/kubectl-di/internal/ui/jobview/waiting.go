// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/remedy"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
)

// Waiting returns why a job does not run, and what would let it; nil if it runs or has finished.
func Waiting(job *v2alpha1.DIJob, row *api.JobRow) *api.Waiting {
	if replicas.IsFinished(job) || job.DeletionTimestamp != nil {
		return nil
	}
	waiting := &api.Waiting{Namespace: job.Namespace, Name: job.Name, GPUs: row.GPUs, Remedies: []string{}}
	if ptr.Deref(job.Spec.Suspend, false) {
		waiting.Why, waiting.Remedies = "The job is suspended.", []string{"Resume the job."}
		if condition := conditions.Find(&job.Status, v2alpha1.ConditionSuspended); condition != nil {
			waiting.Since = timeOf(condition.LastTransitionTime)
		}
		return waiting
	}
	blocking := blocking(job)
	for _, condition := range blocking {
		waiting.Remedies = append(waiting.Remedies, remedies(job, row, condition)...)
	}
	switch {
	case len(blocking) > 0:
		waiting.Why = short(cmp.Or(blocking[0].Message, blocking[0].Reason, blocking[0].Type))
		waiting.Since = timeOf(blocking[0].LastTransitionTime)
	case names.OtherManager(&job.Spec) != "":
		waiting.Why = fmt.Sprintf("Controller %s runs this job, and not DI Orchestrator.", names.OtherManager(&job.Spec))
		waiting.Remedies = []string{"Look at that controller, or create the job without spec.managedBy."}
	case job.Status.Phase == "" || job.Status.ObservedGeneration == 0 && job.Status.Phase == v2alpha1.JobPending:
		waiting.Why = "The operator has not observed the job."
		waiting.Remedies = []string{"Check that the operator runs: kubectl di version."}
	case job.Status.Phase == v2alpha1.JobPending:
		waiting.Why = "The job has no pods yet."
	default:
		return nil
	}
	return waiting
}

// blocking returns the conditions that keep a job from running, the most fundamental first.
func blocking(job *v2alpha1.DIJob) []*v2alpha1.DIJobCondition {
	var found []*v2alpha1.DIJobCondition
	for _, want := range []struct {
		kind   string
		status corev1.ConditionStatus
	}{
		{v2alpha1.ConditionInvalidSpec, corev1.ConditionTrue}, {v2alpha1.ConditionNameConflict, corev1.ConditionTrue},
		{v2alpha1.ConditionReplicaFailure, corev1.ConditionTrue}, {v2alpha1.ConditionAggregatorConfigMissing, corev1.ConditionTrue},
		{v2alpha1.ConditionAllocated, corev1.ConditionFalse}, {v2alpha1.ConditionAdmitted, corev1.ConditionFalse},
		{v2alpha1.ConditionGangScheduled, corev1.ConditionFalse}, {v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue},
	} {
		if condition := conditions.Find(&job.Status, want.kind); condition != nil && condition.Status == want.status {
			found = append(found, condition)
		}
	}
	return found
}

// remedies returns what would end a condition.
func remedies(job *v2alpha1.DIJob, row *api.JobRow, condition *v2alpha1.DIJobCondition) []string {
	switch condition.Reason {
	case v2alpha1.ReasonInsufficientCapacity:
		return capacity(job, row)
	case v2alpha1.ReasonNoAllocator:
		return []string{"Run the operator with its allocator, or create the job with spec.preemptible false."}
	case v2alpha1.ReasonWaitingInQueue:
		return []string{fmt.Sprintf("Quota of queue %s becomes free when other jobs of it end, or an administrator raises it.", queue(job))}
	case v2alpha1.ReasonNotManagedByKueue:
		return []string{"An administrator enables Kueue's integration of pods for this namespace."}
	case v2alpha1.ReasonNoKueue:
		return []string{"An administrator installs Kueue, or the job drops its queue."}
	case v2alpha1.ReasonNoGangScheduler:
		return []string{"An administrator installs a gang scheduler, or the job drops spec.scheduling.gang."}
	case v2alpha1.ReasonUnschedulable:
		return unschedulable(job, row, condition.Message)
	}
	if texts := remedy.Of(condition.Reason, condition.Message); texts != nil {
		return texts
	}
	return remediesOf(condition.Type, row)
}

// insufficientDevice is what the scheduler says of extended resources, such as GPUs.
var insufficientDevice = regexp.MustCompile(`Insufficient [^ ,]+/`)

// unschedulable returns what lets a node take pods that fit none.
func unschedulable(job *v2alpha1.DIJob, row *api.JobRow, message string) []string {
	texts := remedy.Of(v2alpha1.ReasonUnschedulable, message)
	switch {
	case insufficientDevice.MatchString(message):
		return append(capacity(job, row), texts...)
	case len(texts) == 0:
		return append(capacity(job, row), "Check node selectors, affinity and tolerations of the templates.")
	}
	return texts
}

// remediesOf returns what would end a condition whatever its reason is.
func remediesOf(kind string, row *api.JobRow) []string {
	switch kind {
	case v2alpha1.ConditionInvalidSpec:
		return []string{"Correct the spec: the message names the field."}
	case v2alpha1.ConditionNameConflict:
		return []string{"Delete or rename the object that has the name, or create the job under another name."}
	case v2alpha1.ConditionAggregatorConfigMissing:
		return []string{"Create the AggregatorConfig that the message names."}
	case v2alpha1.ConditionGangScheduled:
		return []string{fmt.Sprintf("All pods of the gang must fit at once. GPUs that the job requests: %d.", row.GPUs)}
	}
	return nil
}

// capacity returns what gives a job enough room.
func capacity(job *v2alpha1.DIJob, row *api.JobRow) []string {
	texts := []string{"Other jobs end or shrink, or an administrator adds nodes."}
	if row.GPUs > 0 {
		texts[0] = fmt.Sprintf("Other jobs end or shrink, or an administrator adds nodes. GPUs that the job requests: %d.", row.GPUs)
	}
	if job.Spec.Preemptible && job.Spec.Elastic != nil {
		texts = append(texts, "A smaller spec.elastic.minReplicas lets the allocator start the job with fewer replicas.")
	}
	return texts
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
