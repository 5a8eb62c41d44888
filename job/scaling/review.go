// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

const (
	// History is how many finished plans of a job are kept.
	History = 10
	// defaultDeadline is how long a plan may execute, or wait for its job, if it does not say.
	defaultDeadline = 10 * time.Minute
)

// Deadline returns how long a plan may execute, or wait for its job.
func Deadline(plan *v2alpha1.ScalePlan) time.Duration {
	if seconds := plan.Spec.DeadlineSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return defaultDeadline
}

// Verdict is what happens to a plan.
type Verdict struct {
	// Plan is the plan as observed.
	Plan *v2alpha1.ScalePlan
	// Status is its desired status.
	Status v2alpha1.ScalePlanStatus
	// Reason is the reason of the event about the change of its status, "" for none.
	Reason string
	// Own is set if the job must become the owner of the plan.
	Own bool
	// Delete is set if the plan is deleted as history. Its status is not written then.
	Delete bool
}

// IsChanged reports whether the status differs from the observed one.
func (v *Verdict) IsChanged() bool {
	return !equality.Semantic.DeepEqual(&v.Plan.Status, &v.Status)
}

// Review decides about all plans that name a job, the newest first. The job is nil if it does not exist, the members if
// the job has none. It
// also returns after how long the plans are reviewed again even if nothing changes; 0 for never.
func Review(job *v2alpha1.DIJob, members *v2alpha1.Membership, plans []*v2alpha1.ScalePlan, maxPods int32, now time.Time) (verdicts []Verdict, after time.Duration) {
	r := &review{job: job, members: members, record: RecordOf(job), maxPods: maxPods, now: now}
	plans = slices.Clone(plans)
	slices.SortFunc(plans, func(a, b *v2alpha1.ScalePlan) int { return comparePlans(b, a) })
	for _, plan := range plans {
		if !plan.DeletionTimestamp.IsZero() || job != nil && IsOfOtherJob(plan, job) {
			continue
		}
		verdict := Verdict{Plan: plan, Own: job != nil && !isOwned(plan, job)}
		plan.Status.DeepCopyInto(&verdict.Status)
		if !IsFinished(plan.Status.Phase) {
			r.decide(&verdict)
		}
		r.keep(&verdict)
		verdicts = append(verdicts, verdict)
	}
	return verdicts, r.after
}

// review is the state of a review, which goes from the newest plan to the oldest.
type review struct {
	job     *v2alpha1.DIJob
	members *v2alpha1.Membership
	record  *v2alpha1.PlanRecord
	maxPods int32
	now     time.Time
	// newest is the newest plan that is neither finished nor refused.
	newest *v2alpha1.ScalePlan
	// finished counts the finished plans.
	finished int
	after    time.Duration
}

// decide decides about an unfinished plan.
func (r *review) decide(v *Verdict) {
	plan := v.Plan
	switch {
	case r.record != nil && r.record.UID == string(plan.UID):
		r.follow(v)
	case r.job != nil && isOlder(plan, r.job):
		r.finish(v, v2alpha1.PlanRefused, v2alpha1.ReasonPlanRefused,
			fmt.Sprintf("spec.job: job %s was created after the plan, which may be meant for an earlier job: create the plan again", plan.Spec.Job))
	case !isNewer(plan, r.record):
		r.finish(v, v2alpha1.PlanSuperseded, v2alpha1.ReasonPlanSuperseded, fmt.Sprintf("plan %s is newer", r.record.Name))
	case r.newest != nil:
		r.finish(v, v2alpha1.PlanSuperseded, v2alpha1.ReasonPlanSuperseded, fmt.Sprintf("plan %s is newer", r.newest.Name))
	case isAccepted(plan) && r.job != nil && state.IsFinished(&r.job.Status):
		r.finish(v, v2alpha1.PlanRefused, v2alpha1.ReasonPlanRefused, refuseJob(plan, r.job))
	case isAccepted(plan):
		r.newest = plan
	default:
		r.accept(v)
	}
}

// accept accepts or refuses a plan that is new.
func (r *review) accept(v *Verdict) {
	if waits := r.waitsFor(v.Plan); waits != "" {
		r.wait(v, waits)
		return
	}
	change, problems := Read(v.Plan, r.job, r.members, r.maxPods)
	if len(problems) > 0 {
		r.finish(v, v2alpha1.PlanRefused, v2alpha1.ReasonPlanRefused, state.Few(problems, "; "))
		return
	}
	r.newest = v.Plan
	r.set(v, v2alpha1.PlanPending, v2alpha1.ReasonPlanAccepted, change.Message)
}

// waitsFor returns what a plan waits for, "" for nothing.
func (r *review) waitsFor(plan *v2alpha1.ScalePlan) string {
	switch {
	case r.job == nil || !r.job.DeletionTimestamp.IsZero():
		return fmt.Sprintf("job %s does not exist", plan.Spec.Job)
	case names.OtherManager(&r.job.Spec) != "":
		return fmt.Sprintf("job %s is managed by %s", plan.Spec.Job, names.OtherManager(&r.job.Spec))
	case state.IsSuspended(r.job) && !state.IsFinished(&r.job.Status):
		return fmt.Sprintf("job %s is suspended", plan.Spec.Job)
	}
	return ""
}

// wait lets a plan wait for its job until its deadline.
func (r *review) wait(v *Verdict, waits string) {
	left := v.Plan.CreationTimestamp.Add(Deadline(v.Plan)).Sub(r.now)
	if left <= 0 {
		r.finish(v, v2alpha1.PlanRefused, v2alpha1.ReasonPlanRefused, fmt.Sprintf("spec.job: %s, and spec.deadlineSeconds are over", waits))
		return
	}
	r.newest = v.Plan
	r.after = state.Sooner(r.after, left)
	r.set(v, v2alpha1.PlanPending, v2alpha1.ReasonPlanWaiting, waits)
}

// follow copies the progress that the job records.
func (r *review) follow(v *Verdict) {
	record := r.record
	v.Status.StartTime = record.StartTime
	switch record.Phase {
	case v2alpha1.PlanExecuting:
		if r.newest == nil {
			r.newest = v.Plan
		}
		r.set(v, v2alpha1.PlanExecuting, v2alpha1.ReasonPlanExecuting, record.Message)
	case v2alpha1.PlanSucceeded:
		r.finish(v, record.Phase, v2alpha1.ReasonPlanSucceeded, record.Message)
	case v2alpha1.PlanRefused:
		r.finish(v, record.Phase, v2alpha1.ReasonPlanRefused, record.Message)
	default:
		r.finish(v, v2alpha1.PlanFailed, v2alpha1.ReasonPlanFailed, record.Message)
	}
	if record.CompletionTime != nil {
		v.Status.CompletionTime = record.CompletionTime
	}
}

// finish gives a plan its last phase.
func (r *review) finish(v *Verdict, phase v2alpha1.PlanPhase, reason, message string) {
	v.Status.CompletionTime = ptr.To(metav1.NewTime(r.now.Truncate(time.Second)))
	r.set(v, phase, reason, message)
}

// set sets phase, message and conditions.
func (r *review) set(v *Verdict, phase v2alpha1.PlanPhase, reason, message string) {
	if meta.FindStatusCondition(v.Status.Conditions, v2alpha1.PlanConditionComplete) == nil || v.Status.Phase != phase || v.Status.Message != message {
		v.Reason = reason
	}
	v.Status.Phase, v.Status.Message = phase, message
	isAccepted := phase == v2alpha1.PlanExecuting || phase == v2alpha1.PlanSucceeded || phase == v2alpha1.PlanFailed || reason == v2alpha1.ReasonPlanAccepted
	switch {
	case isAccepted && !meta.IsStatusConditionTrue(v.Status.Conditions, v2alpha1.PlanConditionAccepted):
		r.setCondition(v, v2alpha1.PlanConditionAccepted, metav1.ConditionTrue, v2alpha1.ReasonPlanAccepted, message)
	case phase == v2alpha1.PlanRefused, reason == v2alpha1.ReasonPlanWaiting, v.Plan.Status.Phase == "" && !isAccepted:
		r.setCondition(v, v2alpha1.PlanConditionAccepted, metav1.ConditionFalse, reason, message)
	}
	complete := metav1.ConditionFalse
	if phase == v2alpha1.PlanSucceeded {
		complete = metav1.ConditionTrue
	}
	r.setCondition(v, v2alpha1.PlanConditionComplete, complete, reason, message)
}

func (r *review) setCondition(v *Verdict, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: v.Plan.Generation,
		LastTransitionTime: metav1.NewTime(r.now.Truncate(time.Second)),
	})
}

// keep decides whether a finished plan is still kept.
func (r *review) keep(v *Verdict) {
	if !IsFinished(v.Status.Phase) {
		return
	}
	r.finished++
	v.Delete = r.finished > History
	if ttl, finished := v.Plan.Spec.TTLSecondsAfterFinished, v.Status.CompletionTime; ttl != nil && finished != nil {
		left := finished.Add(time.Duration(*ttl) * time.Second).Sub(r.now)
		v.Delete = v.Delete || left <= 0
		r.after = state.Sooner(r.after, max(left, 0))
	}
	if v.Delete {
		v.Own = false
	}
}
