// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// Both lifecycles share these rules for suspend, activeDeadlineSeconds and ttlSecondsAfterFinished.
// The fields have the meaning of those of a batch/v1 Job.

// Expire deletes a job once it has been finished for ttlSecondsAfterFinished.
func (p *Plan) Expire() Result {
	finished, kept := p.in.Job.Status.CompletionTimestamp, p.in.Job.Spec.TTLSecondsAfterFinished
	if !IsFinished(&p.in.Job.Status) || finished == nil || kept == nil {
		return Continue
	}
	left := finished.Add(seconds(int64(*kept))).Sub(p.in.Now)
	if left > 0 {
		p.RequeueAfter(left)
		return Continue
	}
	p.Decision.DeleteJob = true
	return Settled
}

// EndAtDeadline fails a job that has been active for longer than activeDeadlineSeconds.
func (p *Plan) EndAtDeadline() Result {
	limit := p.in.Job.Spec.ActiveDeadlineSeconds
	if limit == nil || IsSuspended(p.in.Job) || IsFinished(&p.in.Job.Status) {
		return Continue
	}
	left := ActiveSince(p.in.Job, p.in.Now).Add(seconds(*limit)).Sub(p.in.Now)
	if left > 0 {
		p.RequeueAfter(left)
		return Continue
	}
	message := "the job exceeded its deadline of " + english.Plural(int(*limit), "second", "")
	p.RecordLastFailure(&v2alpha1.LastFailure{Reason: v2alpha1.ReasonDeadlineExceeded, Message: message, Time: &p.in.Timestamp})
	p.Finish(v2alpha1.JobFailed, message)
	return Settled
}

// seconds returns a duration of that many seconds, clamped. Earlier releases stored large numbers
// that mean never.
func seconds(count int64) time.Duration {
	return time.Duration(min(count, limits.Seconds)) * time.Second
}

// ActiveSince returns since when a job that is not suspended has been active: since its admission
// from the queue, else since its resumption, which may be now, else since its creation.
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

// Suspend deletes the pods of a suspended job, and then the Membership. The next coordinator starts
// with an empty list.
func (p *Plan) Suspend() Result {
	if !IsSuspended(p.in.Job) {
		p.resume()
		return Continue
	}
	for _, pod := range p.in.Pods {
		p.DeletePod(pod)
	}
	return p.Stop()
}

// Stop deletes the other objects of a suspended job, and reports that the job is suspended.
func (p *Plan) Stop() Result {
	p.deleteOthers()
	const message = "spec.suspend is true: the job has no pods until it is false again"
	if p.RecordCondition(v2alpha1.ConditionSuspended, corev1.ConditionTrue, v2alpha1.ConditionSuspended, message) {
		p.Event(corev1.EventTypeNormal, v2alpha1.ConditionSuspended, message)
	}
	p.SetPhase(v2alpha1.JobPending, "the job is suspended")
	return Settled
}

// deleteOthers deletes all objects but the pods, and the Membership once there are no pods.
func (p *Plan) deleteOthers() {
	for _, service := range p.in.Services {
		p.DeleteService(service)
	}
	p.DeletePodGroups()
	p.DeleteUnusedNodes()
	if list := p.in.Membership; len(p.in.Pods) == 0 && list != nil && list.DeletionTimestamp.IsZero() {
		p.Decision.DeleteMembership = true
	}
}

// resume reports that a suspended job was resumed.
func (p *Plan) resume() {
	if !p.IsTrue(v2alpha1.ConditionSuspended) {
		return
	}
	const message = "job resumed"
	p.RecordCondition(v2alpha1.ConditionSuspended, corev1.ConditionFalse, v2alpha1.ReasonResumed, message)
	p.Event(corev1.EventTypeNormal, v2alpha1.ReasonResumed, message)
}

// IsUnplaced reports whether a job waits for the allocator to place it.
func IsUnplaced(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && len(job.Status.Allocation) == 0
}

// IsSuspended reports whether a job is suspended by its spec.
func IsSuspended(job *v2alpha1.DIJob) bool {
	return ptr.Deref(job.Spec.Suspend, false)
}

// CleanUp deletes what a finished job no longer needs: its services, and its pods by its
// policy. It acts once the end is recorded.
func (p *Plan) CleanUp() Result {
	if !IsFinished(&p.in.Job.Status) {
		return Continue
	}
	p.completeEnd()
	for _, service := range p.in.Services {
		p.DeleteService(service)
	}
	p.DeletePodGroups()
	policy := p.in.CleanPodPolicy()
	for _, pod := range p.in.Pods {
		if policy == v2alpha1.CleanPodPolicyAll || policy == v2alpha1.CleanPodPolicyRunning && isActive(pod) {
			p.DeletePod(pod)
		}
	}
	p.DeleteUnusedNodes()
	return Settled
}

// CleanPodPolicy returns which pods of a finished job are deleted.
func (in *Input) CleanPodPolicy() v2alpha1.CleanPodPolicy {
	return cmp.Or(in.Job.Spec.CleanPodPolicy, v2alpha1.CleanPodPolicyRunning)
}

// completeEnd completes the status of a job that an earlier release finished. It adds the condition
// if there is only the phase, and the completion time.
func (p *Plan) completeEnd() {
	status := p.Status()
	if endOfJob(status) == nil {
		kind, reason := ConditionOf(status.Phase, IsCoordinatorLed(p.in.Job)), ReasonOf(status.Phase, IsCoordinatorLed(p.in.Job))
		p.RecordCondition(kind, corev1.ConditionTrue, reason, "an earlier release finished the job")
	}
	if status.CompletionTimestamp == nil {
		p.recordPhase(status.Phase, cmp.Or(endOfJob(status).LastTransitionTime, &p.in.Timestamp).DeepCopy())
	}
}

// isActive reports whether a pod of a finished job is pending or still runs, and none of its
// containers has terminated. A pod that keeps crashing is kept for its logs, and so is a
// coordinator whose sidecar runs. A succeeded worker with a running injected container is not kept.
func isActive(pod *corev1.Pod) bool {
	return podstate.InjectedRuns(pod) || !podstate.Finished(pod) && !podstate.ContainerExited(pod)
}
