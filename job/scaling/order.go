// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// IsFinished reports whether a plan has its last phase.
func IsFinished(phase v2alpha1.PlanPhase) bool {
	return slices.Contains([]v2alpha1.PlanPhase{v2alpha1.PlanSucceeded, v2alpha1.PlanFailed, v2alpha1.PlanSuperseded, v2alpha1.PlanRefused}, phase)
}

// isAccepted reports whether a plan was found executable.
func isAccepted(plan *v2alpha1.ScalePlan) bool {
	return meta.IsStatusConditionTrue(plan.Status.Conditions, v2alpha1.PlanConditionAccepted)
}

// IsReady reports whether a plan was accepted and is not finished, so that its job may execute it.
func IsReady(plan *v2alpha1.ScalePlan) bool {
	return isAccepted(plan) && !IsFinished(plan.Status.Phase)
}

// IsOfOtherJob reports whether a plan was accepted for an earlier job of the same name. The garbage
// collector deletes it.
func IsOfOtherJob(plan *v2alpha1.ScalePlan, job *v2alpha1.DIJob) bool {
	return slices.ContainsFunc(plan.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "DIJob" && owner.Name == plan.Spec.Job && owner.UID != job.UID
	})
}

// isOlder reports whether a plan that no job owns was created before a job. It was meant for an earlier job of this
// name, which ended before it owned the plan. The API server stamped both.
func isOlder(plan *v2alpha1.ScalePlan, job *v2alpha1.DIJob) bool {
	return !isOwned(plan, job) && plan.CreationTimestamp.Before(&job.CreationTimestamp)
}

// isOwned reports whether a plan has a job as its owner.
func isOwned(plan *v2alpha1.ScalePlan, job *v2alpha1.DIJob) bool {
	return slices.ContainsFunc(plan.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == job.UID })
}

// comparePlans orders plans, the oldest first. Creation timestamps are in seconds, so names decide between
// plans of one second.
func comparePlans(a, b *v2alpha1.ScalePlan) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// maxNamePrefix is the length up to which the API server keeps a generateName.
const maxNamePrefix = 58

// NewPlan returns a plan for a job, to be created at a time. Its name begins with that time in milliseconds, so that
// the names order the plans that a client creates within a second.
func NewPlan(job *v2alpha1.DIJob, spec *v2alpha1.ScalePlanSpec, at time.Time) *v2alpha1.ScalePlan {
	plan := &v2alpha1.ScalePlan{Spec: *spec}
	plan.Namespace, plan.Spec.Job = job.Namespace, job.Name
	moment := "-" + strconv.FormatInt(at.UnixMilli(), 36) + "-"
	plan.GenerateName = strings.TrimRight(job.Name[:min(len(job.Name), maxNamePrefix-len(moment))], "-.") + moment
	return plan
}

// isNewer reports whether a plan is newer than the one that the job executes, or executed last.
func isNewer(plan *v2alpha1.ScalePlan, record *v2alpha1.PlanRecord) bool {
	if record == nil || record.CreationTime == nil {
		return record == nil || record.UID != string(plan.UID)
	}
	return cmp.Or(plan.CreationTimestamp.Compare(record.CreationTime.Time), cmp.Compare(plan.Name, record.Name)) > 0
}

// RecordOf returns the recorded plan of a job, nil if there is none.
func RecordOf(job *v2alpha1.DIJob) *v2alpha1.PlanRecord {
	if job == nil || job.Status.Scaling == nil {
		return nil
	}
	return job.Status.Scaling.Plan
}

// Next returns the plan that the job must execute next: the newest accepted one, if it is newer than the
// recorded one. It returns nil if there is none.
func Next(job *v2alpha1.DIJob, plans []*v2alpha1.ScalePlan) *v2alpha1.ScalePlan {
	var next *v2alpha1.ScalePlan
	for _, plan := range plans {
		isCandidate := IsReady(plan) && isOwned(plan, job) && plan.DeletionTimestamp.IsZero()
		if isCandidate && isNewer(plan, RecordOf(job)) && (next == nil || comparePlans(plan, next) > 0) {
			next = plan
		}
	}
	return next
}

// Executing returns the recorded plan while it executes, and its object; nil if its object is gone.
func Executing(job *v2alpha1.DIJob, plans []*v2alpha1.ScalePlan) (*v2alpha1.PlanRecord, *v2alpha1.ScalePlan) {
	record := RecordOf(job)
	if record == nil || record.Phase != v2alpha1.PlanExecuting {
		return nil, nil
	}
	for _, plan := range plans {
		if string(plan.UID) == record.UID && plan.DeletionTimestamp.IsZero() && !IsFinished(plan.Status.Phase) {
			return record, plan
		}
	}
	return record, nil
}
