// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// The first disrupted pod is recreated at once and not counted, so that nothing
// else bounds how often that happens: a node that rejects a pod may be chosen
// again. So further disruptions back off. The condition ReplicasDisrupted records
// when the disruptions began and when pods were last recreated after one; the
// backoff is as long as the disruptions have lasted. The status survives a restart
// of the operator.

// quietPeriod is how long all pods of a job must be ready and undisrupted before the
// backoff resets.
const quietPeriod = time.Minute

// backOffDisrupted has pods wait that are disrupted again within the backoff.
func backOffDisrupted(p *plan) outcome {
	if disrupted := p.disruptedReplicas(); len(disrupted) > 0 {
		p.backingOff = !p.mayRecreate(disrupted)
	}
	return goOn
}

// disruptedPod is a pod that ended by a disruption and still exists.
type disruptedPod struct {
	pod  *corev1.Pod
	task v2alpha1.TaskType
}

// disruptedReplicas returns the disrupted pods of desired replicas.
func (p *plan) disruptedReplicas() []disruptedPod {
	var found []disruptedPod
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		if pod := p.pods[replica.Pod]; pod != nil && podstate.FailedOrLost(pod) && !podstate.Terminating(pod) && !hasFailed(p.Job, pod) {
			found = append(found, disruptedPod{pod, p.Job.Spec.Tasks[replica.Task].Type})
		}
	}
	return found
}

// mayRecreate reports whether disrupted pods may be recreated now, and then reports
// their disruption; else it requeues the job for the end of the backoff.
func (p *plan) mayRecreate(disrupted []disruptedPod) bool {
	if left := p.backoffLeft(); left > 0 {
		p.requeueAfter(left)
		return false
	}
	p.reportDisruption(disrupted)
	return true
}

// reportDisruption reports what disrupted pods that are recreated under their names.
func (p *plan) reportDisruption(disrupted []disruptedPod) {
	pods := make([]*corev1.Pod, len(disrupted))
	for i, each := range disrupted {
		pods[i] = each.pod
		p.recordFailure(each.task, each.pod)
	}
	recorded := p.recordDisruption(pods, "recreating it without counting a failure")
	recorded.Message += fmt.Sprintf(", next retry in %s", backoffAfter(recorded))
	p.event(corev1.EventTypeWarning, recorded.Reason, recorded.Message)
}

// recordDisruption sets the condition for disrupted pods, with what the operator
// does about them.
func (p *plan) recordDisruption(pods []*corev1.Pod, outcome string) *v2alpha1.DIJobCondition {
	const condition = v2alpha1.ConditionReplicasDisrupted
	reason := failureReason(p.Job, pods[0])
	conditions.Set(p.status(), condition, corev1.ConditionTrue, reason, "", p.Now)
	recorded := conditions.Find(p.status(), condition)
	recorded.LastUpdateTime = &p.now
	recorded.Message = describeDisruption(pods[0], reason, len(pods)-1) + "; " + outcome
	return recorded
}

// describeDisruption describes the disruption of a pod, and counts the others.
func describeDisruption(pod *corev1.Pod, reason string, others int) string {
	text := fmt.Sprintf("pod %s was disrupted (%s)", pod.Name, cmp.Or(pod.Status.Reason, reason))
	if reason == v2alpha1.ReasonGracefulExit {
		text = fmt.Sprintf("pod %s exited gracefully with code %d", pod.Name, exitTerminated)
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
func (p *plan) backoffLeft() time.Duration {
	recorded := conditions.Find(p.status(), v2alpha1.ConditionReplicasDisrupted)
	if recorded == nil || recorded.Status != corev1.ConditionTrue || recorded.LastUpdateTime == nil {
		return 0
	}
	since := p.Now.Sub(recorded.LastUpdateTime.Time)
	if since < 0 {
		return 0
	}
	return backoffAfter(recorded) - since
}

// backoffAfter returns the backoff after the recorded disruption: as long as
// disruptions have lasted, so that it doubles.
func backoffAfter(recorded *v2alpha1.DIJobCondition) time.Duration {
	var lasted time.Duration
	if recorded.LastTransitionTime != nil && recorded.LastUpdateTime != nil {
		lasted = recorded.LastUpdateTime.Sub(recorded.LastTransitionTime.Time)
	}
	return min(max(lasted, firstBackoff), longestBackoff)
}

// resetBackoff clears the condition once all pods are ready and none was disrupted
// for a while.
func (p *plan) resetBackoff() {
	const condition = v2alpha1.ConditionReplicasDisrupted
	recorded := conditions.Find(p.status(), condition)
	if recorded == nil || recorded.Status != corev1.ConditionTrue {
		return
	}
	if !IsFinished(p.status()) && !IsSuspended(p.Job) {
		if recorded.LastUpdateTime == nil || p.backingOff || !p.isAllReady() {
			return
		}
		reset := recorded.LastUpdateTime.Add(max(backoffAfter(recorded), quietPeriod))
		if left := reset.Sub(p.Now); left > 0 {
			p.requeueAfter(left)
			return
		}
	}
	conditions.Clear(p.status(), condition, p.Now)
}

// isAllReady reports whether every desired replica is ready or has succeeded. During
// a restart none is. Of a coordinator-led job it reports whether the coordinator runs.
func (p *plan) isAllReady() bool {
	if IsCoordinatorLed(p.Job) {
		coordinator := p.coordinator()
		return coordinator != nil && coordinator.Status.Phase == corev1.PodRunning
	}
	isSeated := len(p.assignment.Replicas) == int(p.counts.total)
	return isSeated && !slices.ContainsFunc(p.assignment.Replicas, func(replica workload.Replica) bool {
		pod := p.pods[replica.Pod]
		return !p.completed().has(replica.Rank) && (pod == nil || !podstate.Ready(pod))
	})
}
