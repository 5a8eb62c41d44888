// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disruptions recreates disrupted pods, and backs off where disruptions repeat.
package disruptions

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// The first disrupted pod is recreated at once and is not counted. So nothing else bounds how often
// that happens: the scheduler may choose a node again that rejects the pod. Further disruptions
// therefore back off. The condition ReplicasDisrupted records when the disruptions began and when
// pods were last recreated after one. The backoff is as long as the disruptions have lasted. The
// status survives a restart of the operator.

const (
	// FirstBackoff is the minimum delay before a pod that was disrupted repeatedly is
	// recreated.
	FirstBackoff = 10 * time.Second
	// LongestBackoff bounds every backoff of a pod.
	LongestBackoff = 5 * time.Minute
)

// quietPeriod is how long all pods of a job must be ready and undisrupted before the
// backoff resets.
const quietPeriod = time.Minute

// Rules are the rules of disrupted pods.
type Rules struct {
	out *state.Plan
	in  *state.Input
}

// New returns the rules of a job's disrupted pods.
func New(out *state.Plan, in *state.Input) Rules { return Rules{out: out, in: in} }

// DisruptedPod is a pod that was disrupted and still exists.
type DisruptedPod struct {
	Pod *corev1.Pod
	// Task is the type of its task.
	Task v2alpha1.TaskType
}

// MayRecreate reports whether disrupted pods may be recreated now. If so, it reports their
// disruption; otherwise it requeues the job for the end of the backoff.
func (d Rules) MayRecreate(disrupted []DisruptedPod) bool {
	if left := d.backoffLeft(); left > 0 {
		d.out.RequeueAfter(left)
		return false
	}
	d.ReportDisruption(disrupted)
	return true
}

// ReportDisruption reports the disruption of pods that are recreated under their names.
func (d Rules) ReportDisruption(disrupted []DisruptedPod) {
	pods := make([]*corev1.Pod, len(disrupted))
	for i, each := range disrupted {
		pods[i] = each.Pod
		d.out.RecordFailure(each.Task, each.Pod)
	}
	recorded := d.RecordDisruption(pods, "recreating it without counting a failure")
	recorded.Message += fmt.Sprintf(", next retry in %s", BackoffAfter(recorded))
	d.out.Event(corev1.EventTypeWarning, recorded.Reason, recorded.Message)
}

// RecordDisruption sets the condition for disrupted pods, with the action that the operator takes.
func (d Rules) RecordDisruption(pods []*corev1.Pod, outcome string) *v2alpha1.DIJobCondition {
	const condition = v2alpha1.ConditionReplicasDisrupted
	reason := d.disruptionReason(pods[0])
	d.out.RecordCondition(condition, corev1.ConditionTrue, reason, "")
	recorded := d.out.Condition(condition)
	recorded.LastUpdateTime = &d.in.Timestamp
	recorded.Message = describeDisruption(pods[0], reason, len(pods)-1) + "; " + outcome
	return recorded
}

// disruptionReason returns what disrupted a pod. A pod that failed counts as disrupted only because another
// replica is stalled.
func (d Rules) disruptionReason(pod *corev1.Pod) string {
	if state.HasFailed(d.in.Job, pod) {
		return v2alpha1.ReasonPeerStalled
	}
	return state.FailureReason(d.in.Job, pod)
}

// describeDisruption describes the disruption of a pod, and counts the others.
func describeDisruption(pod *corev1.Pod, reason string, others int) string {
	text := fmt.Sprintf("pod %s was disrupted (%s)", pod.Name, cmp.Or(pod.Status.Reason, reason))
	if reason == v2alpha1.ReasonGracefulExit {
		text = fmt.Sprintf("pod %s exited gracefully with code %d", pod.Name, state.ExitTerminated)
	}
	if reason == v2alpha1.ReasonPeerStalled {
		text = fmt.Sprintf("pod %s has failed%s while another replica could not start", pod.Name, podstate.FailureCause(pod))
	}
	if pod.Status.Message != "" {
		text += problems.BeforeQuote + podstate.LastLine(pod.Status.Message) + `"`
	}
	if others > 0 {
		text += ", and so did " + problems.MorePods(others)
	}
	return text
}

// backoffLeft returns how long disrupted pods must still wait, 0 for the first
// disruption. A clock that was set back does not extend the backoff.
func (d Rules) backoffLeft() time.Duration {
	recorded := d.out.Condition(v2alpha1.ConditionReplicasDisrupted)
	if recorded == nil || recorded.Status != corev1.ConditionTrue || recorded.LastUpdateTime == nil {
		return 0
	}
	since := d.in.Now.Sub(recorded.LastUpdateTime.Time)
	if since < 0 {
		return 0
	}
	return BackoffAfter(recorded) - since
}

// BackoffAfter returns the backoff after the recorded disruption: as long as
// disruptions have lasted, so that it doubles.
func BackoffAfter(recorded *v2alpha1.DIJobCondition) time.Duration {
	var lasted time.Duration
	if recorded.LastTransitionTime != nil && recorded.LastUpdateTime != nil {
		lasted = recorded.LastUpdateTime.Sub(recorded.LastTransitionTime.Time)
	}
	return min(max(lasted, FirstBackoff), LongestBackoff)
}

// ResetBackoff clears the condition once all pods are ready and none was disrupted
// for a while.
func (d Rules) ResetBackoff(isAllReady, isBackingOff bool) {
	const condition = v2alpha1.ConditionReplicasDisrupted
	recorded := d.out.Condition(condition)
	if recorded == nil || recorded.Status != corev1.ConditionTrue {
		return
	}
	if !state.IsFinished(d.out.Status()) && !state.IsSuspended(d.in.Job) {
		if recorded.LastUpdateTime == nil || isBackingOff || !isAllReady {
			return
		}
		reset := recorded.LastUpdateTime.Add(max(BackoffAfter(recorded), quietPeriod))
		if left := reset.Sub(d.in.Now); left > 0 {
			d.out.RequeueAfter(left)
			return
		}
	}
	d.out.ClearCondition(condition)
}
