// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/podstate"
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

// DisruptedPod is a pod that was disrupted and still exists.
type DisruptedPod struct {
	Pod *corev1.Pod
	// Task is the type of its task.
	Task v2alpha1.TaskType
}

// MayRecreate reports whether disrupted pods may be recreated now. If so, it reports their
// disruption; otherwise it requeues the job for the end of the backoff.
func (p *Plan) MayRecreate(disrupted []DisruptedPod) bool {
	if left := p.backoffLeft(); left > 0 {
		p.RequeueAfter(left)
		return false
	}
	p.ReportDisruption(disrupted)
	return true
}

// ReportDisruption reports the disruption of pods that are recreated under their names.
func (p *Plan) ReportDisruption(disrupted []DisruptedPod) {
	pods := make([]*corev1.Pod, len(disrupted))
	for i, each := range disrupted {
		pods[i] = each.Pod
		p.RecordFailure(each.Task, each.Pod)
	}
	recorded := p.RecordDisruption(pods, "recreating it without counting a failure")
	recorded.Message += fmt.Sprintf(", next retry in %s", BackoffAfter(recorded))
	p.Event(corev1.EventTypeWarning, recorded.Reason, recorded.Message)
}

// RecordDisruption sets the condition for disrupted pods, with the action that the operator takes.
func (p *Plan) RecordDisruption(pods []*corev1.Pod, outcome string) *v2alpha1.DIJobCondition {
	const condition = v2alpha1.ConditionReplicasDisrupted
	reason := p.disruptionReason(pods[0])
	p.RecordCondition(condition, corev1.ConditionTrue, reason, "")
	recorded := p.Condition(condition)
	recorded.LastUpdateTime = &p.in.Timestamp
	recorded.Message = describeDisruption(pods[0], reason, len(pods)-1) + "; " + outcome
	return recorded
}

// disruptionReason returns what disrupted a pod. A pod that failed counts as disrupted only because another
// replica is stalled.
func (p *Plan) disruptionReason(pod *corev1.Pod) string {
	if HasFailed(p.in.Job, pod) {
		return v2alpha1.ReasonPeerStalled
	}
	return FailureReason(p.in.Job, pod)
}

// describeDisruption describes the disruption of a pod, and counts the others.
func describeDisruption(pod *corev1.Pod, reason string, others int) string {
	text := fmt.Sprintf("pod %s was disrupted (%s)", pod.Name, cmp.Or(pod.Status.Reason, reason))
	if reason == v2alpha1.ReasonGracefulExit {
		text = fmt.Sprintf("pod %s exited gracefully with code %d", pod.Name, ExitTerminated)
	}
	if reason == v2alpha1.ReasonPeerStalled {
		text = fmt.Sprintf("pod %s has failed%s while another replica could not start", pod.Name, podstate.FailureCause(pod))
	}
	if pod.Status.Message != "" {
		text += beforeQuote + podstate.LastLine(pod.Status.Message) + `"`
	}
	if others > 0 {
		text += ", and so did " + morePods(others)
	}
	return text
}

// backoffLeft returns how long disrupted pods must still wait, 0 for the first
// disruption. A clock that was set back does not extend the backoff.
func (p *Plan) backoffLeft() time.Duration {
	recorded := p.Condition(v2alpha1.ConditionReplicasDisrupted)
	if recorded == nil || recorded.Status != corev1.ConditionTrue || recorded.LastUpdateTime == nil {
		return 0
	}
	since := p.in.Now.Sub(recorded.LastUpdateTime.Time)
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
func (p *Plan) ResetBackoff(isAllReady, isBackingOff bool) {
	const condition = v2alpha1.ConditionReplicasDisrupted
	recorded := p.Condition(condition)
	if recorded == nil || recorded.Status != corev1.ConditionTrue {
		return
	}
	if !IsFinished(p.Status()) && !IsSuspended(p.in.Job) {
		if recorded.LastUpdateTime == nil || isBackingOff || !isAllReady {
			return
		}
		reset := recorded.LastUpdateTime.Add(max(BackoffAfter(recorded), quietPeriod))
		if left := reset.Sub(p.in.Now); left > 0 {
			p.RequeueAfter(left)
			return
		}
	}
	p.ClearCondition(condition)
}
