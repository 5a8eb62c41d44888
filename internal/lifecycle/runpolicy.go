// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
)

// The rules that both lifecycles share for suspend, activeDeadlineSeconds and
// ttlSecondsAfterFinished, which mean what they mean in a batch/v1 Job.

// expire deletes a job once it has been finished for ttlSecondsAfterFinished.
func expire(p *plan) outcome {
	finished, kept := p.Job.Status.CompletionTimestamp, p.Job.Spec.TTLSecondsAfterFinished
	if !IsFinished(&p.Job.Status) || finished == nil || kept == nil {
		return goOn
	}
	left := finished.Add(seconds(int64(*kept))).Sub(p.Now)
	if left > 0 {
		p.requeueAfter(left)
		return goOn
	}
	p.decision.DeleteJob = true
	return settled
}

// endAtDeadline fails a job that has been active for longer than activeDeadlineSeconds.
func endAtDeadline(p *plan) outcome {
	limit := p.Job.Spec.ActiveDeadlineSeconds
	if limit == nil || IsSuspended(p.Job) || IsFinished(&p.Job.Status) {
		return goOn
	}
	left := ActiveSince(p.Job, p.Now).Add(seconds(*limit)).Sub(p.Now)
	if left > 0 {
		p.requeueAfter(left)
		return goOn
	}
	message := fmt.Sprintf("the job exceeded its deadline of %d seconds", *limit)
	p.status().LastFailure = &v2alpha1.LastFailure{Reason: v2alpha1.ReasonDeadlineExceeded, Message: message, Time: &p.now}
	p.finish(v2alpha1.JobFailed, message)
	return settled
}

// seconds returns that many seconds, clamped: earlier releases stored numbers that are
// meant as never.
func seconds(count int64) time.Duration {
	return time.Duration(min(count, limits.Seconds)) * time.Second
}

// ActiveSince returns since when a job that is not suspended is active: since it was
// admitted from its queue, else resumed, which may be just now, else created.
func ActiveSince(job *v2alpha1.DIJob, now time.Time) time.Time {
	since := resumedOrMade(job, now)
	admitted := conditions.Find(&job.Status, v2alpha1.ConditionAdmitted)
	switch {
	case admitted == nil || admitted.LastTransitionTime == nil:
		return since
	case admitted.Status == corev1.ConditionFalse && admitted.Reason == v2alpha1.ReasonWaitingInQueue:
		return now.Truncate(time.Second)
	case admitted.Status == corev1.ConditionTrue && admitted.LastTransitionTime.After(since):
		return admitted.LastTransitionTime.Time
	}
	return since
}

func resumedOrMade(job *v2alpha1.DIJob, now time.Time) time.Time {
	suspended := conditions.Find(&job.Status, v2alpha1.ConditionSuspended)
	switch {
	case suspended == nil:
		return job.CreationTimestamp.Time
	case suspended.Status == corev1.ConditionTrue || suspended.LastTransitionTime == nil:
		return now.Truncate(time.Second)
	}
	return suspended.LastTransitionTime.Time
}

// suspend deletes the pods of a suspended job, and then the Membership: the next
// coordinator starts afresh.
func suspend(p *plan) outcome {
	if !IsSuspended(p.Job) {
		p.resume()
		return goOn
	}
	isRecorded := p.status().CompletedRanks == p.Job.Status.CompletedRanks && !p.isExcessive()
	for _, pod := range p.Pods {
		// Its rank is not made again once the job goes on, which only the record tells.
		if pod.Status.Phase != corev1.PodSucceeded || isRecorded {
			p.deletePod(pod)
		}
	}
	return p.stop()
}

// stop deletes what a suspended job has beside its pods, and reports that it is
// suspended.
func (p *plan) stop() outcome {
	for _, service := range p.Services {
		p.deleteService(service)
	}
	p.deletePodGroups()
	p.deleteUnusedNodes()
	if list := p.Membership; len(p.Pods) == 0 && list != nil && list.DeletionTimestamp.IsZero() {
		p.decision.DeleteMembership = true
	}
	const message = "spec.suspend is true: the job has no pods until it is false again"
	if conditions.Set(p.status(), v2alpha1.ConditionSuspended, corev1.ConditionTrue, v2alpha1.ConditionSuspended, message, p.Now) {
		p.event(corev1.EventTypeNormal, v2alpha1.ConditionSuspended, message)
	}
	p.setPhase(v2alpha1.JobPending, "the job is suspended")
	return settled
}

// resume reports that a suspended job was resumed.
func (p *plan) resume() {
	if !conditions.IsTrue(p.status(), v2alpha1.ConditionSuspended) {
		return
	}
	const message = "job resumed"
	conditions.Set(p.status(), v2alpha1.ConditionSuspended, corev1.ConditionFalse, v2alpha1.ReasonResumed, message, p.Now)
	p.event(corev1.EventTypeNormal, v2alpha1.ReasonResumed, message)
}

// IsSuspended reports whether a job is suspended by its spec.
func IsSuspended(job *v2alpha1.DIJob) bool {
	return ptr.Deref(job.Spec.Suspend, false)
}
