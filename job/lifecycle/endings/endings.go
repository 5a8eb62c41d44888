// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endings has the rules of the end of a job, and of what pauses it: suspend, activeDeadlineSeconds, cleanPodPolicy,
// ttlSecondsAfterFinished and a deletion that others hold up.
package endings

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Rules are the rules of the end of a job, and of what pauses it.
type Rules struct {
	out *state.Plan
	in  *state.Input
}

// New returns the rules of the end of a job.
func New(out *state.Plan, in *state.Input) Rules { return Rules{out: out, in: in} }

// Both lifecycles share these rules for suspend, activeDeadlineSeconds and ttlSecondsAfterFinished.
// The fields have the meaning of those of a batch/v1 Job.

// Expire deletes a job once it has been finished for ttlSecondsAfterFinished.
func (e Rules) Expire() state.Result {
	finished, kept := e.in.Job.Status.CompletionTimestamp, e.in.Job.Spec.TTLSecondsAfterFinished
	if !state.IsFinished(&e.in.Job.Status) || finished == nil || kept == nil {
		return state.Continue
	}
	left := finished.Add(seconds(int64(*kept))).Sub(e.in.Now)
	if left > 0 {
		e.out.RequeueAfter(left)
		return state.Continue
	}
	e.out.Decision.DeleteJob = true
	return state.Settled
}

// EndAtDeadline fails a job that has been active for longer than activeDeadlineSeconds.
func (e Rules) EndAtDeadline() state.Result {
	limit := e.in.Job.Spec.ActiveDeadlineSeconds
	if limit == nil || state.IsSuspended(e.in.Job) || state.IsFinished(&e.in.Job.Status) {
		return state.Continue
	}
	left := e.in.ActiveSince().Add(seconds(*limit)).Sub(e.in.Now)
	if left > 0 {
		e.out.RequeueAfter(left)
		return state.Continue
	}
	message := "the job exceeded its deadline of " + english.Plural(int(*limit), "second", "")
	e.out.RecordLastFailure(&v2alpha1.LastFailure{Reason: v2alpha1.ReasonDeadlineExceeded, Message: message, Time: &e.in.Timestamp})
	problems.New(e.out, e.in).Finish(v2alpha1.JobFailed, message)
	return state.Settled
}

// seconds returns a duration of that many seconds, clamped. Earlier releases stored large numbers
// that mean never.
func seconds(count int64) time.Duration {
	return time.Duration(min(count, limits.Seconds)) * time.Second
}

// Suspend deletes the pods of a suspended job, and then the Membership. The next coordinator starts
// with an empty list.
func (e Rules) Suspend() state.Result {
	if !state.IsSuspended(e.in.Job) {
		e.resume()
		return state.Continue
	}
	for _, pod := range e.in.Pods {
		e.out.DeletePod(pod)
	}
	return e.Stop()
}

// Stop deletes the other objects of a suspended job, and reports that the job is suspended.
func (e Rules) Stop() state.Result {
	e.deleteOthers()
	const message = "spec.suspend is true: the job has no pods until it is false again"
	if e.out.RecordCondition(v2alpha1.ConditionSuspended, corev1.ConditionTrue, v2alpha1.ConditionSuspended, message) {
		e.out.Event(corev1.EventTypeNormal, v2alpha1.ConditionSuspended, message)
	}
	e.out.SetPhase(v2alpha1.JobPending, "the job is suspended")
	return state.Settled
}

// deleteOthers deletes all objects but the pods, and the Membership once there are no pods.
func (e Rules) deleteOthers() {
	for _, service := range e.in.Services {
		e.out.DeleteService(service)
	}
	e.out.DeletePodGroups()
	e.out.DeleteUnusedNodes()
	if list := e.in.Membership; len(e.in.Pods) == 0 && list != nil && list.DeletionTimestamp.IsZero() {
		e.out.Decision.DeleteMembership = true
	}
}

// resume reports that a suspended job was resumed.
func (e Rules) resume() {
	if !e.out.IsTrue(v2alpha1.ConditionSuspended) {
		return
	}
	const message = "job resumed"
	e.out.RecordCondition(v2alpha1.ConditionSuspended, corev1.ConditionFalse, v2alpha1.ReasonResumed, message)
	e.out.Event(corev1.EventTypeNormal, v2alpha1.ReasonResumed, message)
}

// CleanUp deletes what a finished job no longer needs: its services, and its pods by its
// policy. It acts once the end is recorded.
func (e Rules) CleanUp() state.Result {
	if !state.IsFinished(&e.in.Job.Status) {
		return state.Continue
	}
	e.completeEnd()
	for _, service := range e.in.Services {
		e.out.DeleteService(service)
	}
	e.out.DeletePodGroups()
	policy := e.in.CleanPodPolicy()
	for _, pod := range e.in.Pods {
		if policy == v2alpha1.CleanPodPolicyAll || policy == v2alpha1.CleanPodPolicyRunning && isActive(pod) {
			e.out.DeletePod(pod)
		}
	}
	e.out.DeleteUnusedNodes()
	return state.Settled
}

// completeEnd completes the status of a job that an earlier release finished. It adds the condition
// if there is only the phase, and the completion time.
func (e Rules) completeEnd() {
	status := e.out.Status()
	if state.EndOfJob(status) == nil {
		kind, reason := state.ConditionOf(status.Phase, state.IsCoordinatorLed(e.in.Job)), state.ReasonOf(status.Phase, state.IsCoordinatorLed(e.in.Job))
		e.out.RecordCondition(kind, corev1.ConditionTrue, reason, "an earlier release finished the job")
	}
	if status.CompletionTimestamp == nil {
		e.out.RecordPhase(status.Phase, cmp.Or(state.EndOfJob(status).LastTransitionTime, &e.in.Timestamp).DeepCopy())
	}
}

// isActive reports whether a pod of a finished job is pending or still runs, and none of its
// containers has terminated. A pod that keeps crashing is kept for its logs, and so is a
// coordinator whose sidecar runs. A succeeded worker with a running injected container is not kept.
func isActive(pod *corev1.Pod) bool {
	return podstate.InjectedRuns(pod) || !podstate.Finished(pod) && !podstate.ContainerExited(pod)
}

// Terminate deletes the objects of a job that is held, by whichever policy, because the garbage collector would
// delete them all. It reports who holds the job.
func (e Rules) Terminate() state.Result {
	if !state.IsHeld(e.in.Job) {
		return state.Continue
	}
	for _, pod := range e.in.Pods {
		e.out.DeletePod(pod)
	}
	e.deleteOthers()
	message := "the job is deleted and its pods go, but finalizers hold it: " + state.Few(state.HoldersOf(e.in.Job), ", ") +
		". The controllers that set them must remove them"
	const condition, reason = v2alpha1.ConditionTerminating, v2alpha1.ReasonHeldByFinalizer
	if e.out.RecordCondition(condition, corev1.ConditionTrue, reason, message) {
		e.out.Event(corev1.EventTypeWarning, reason, message)
	}
	if !state.IsFinished(e.out.Status()) {
		e.out.SetPhase(v2alpha1.JobPending, "the job is being deleted")
	}
	return state.Settled
}

// historyQuiet is how long a deleted job waits for the history before that is reported: usually a second or two.
const historyQuiet = 5 * time.Second

// AwaitHistory deletes what a deleted job runs while only the history holds it. Its status stays as it was at the
// deletion, and so do the pods that have ended: the history has yet to read both.
func (e Rules) AwaitHistory() {
	for _, pod := range e.in.Pods {
		if !podstate.Finished(pod) {
			e.out.DeletePod(pod)
		}
	}
	e.deleteOthers()
	if budget := e.in.Budget; budget != nil && budget.DeletionTimestamp.IsZero() {
		e.out.Decision.DeleteBudget = budget
	}
	if left := e.in.JobDeletionSeen().Add(historyQuiet).Sub(e.in.Now); left > 0 {
		e.out.RequeueAfter(left)
		return
	}
	message := fmt.Sprintf("the job is deleted and its pods go, but it stays until the history has recorded its end, for %s at most. "+
		"Look at Deployment di-orchestrator-history", duration.HumanDuration(e.in.History.Timeout))
	const condition, reason = v2alpha1.ConditionTerminating, v2alpha1.ReasonWaitsForHistory
	if e.out.RecordCondition(condition, corev1.ConditionTrue, reason, message) {
		e.out.Event(corev1.EventTypeWarning, reason, message)
	}
	e.out.RecordGeneration()
}
