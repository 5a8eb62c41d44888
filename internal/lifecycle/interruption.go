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

// A pod that ended by what befell it is made again at once and not counted, so
// nothing bounds how often that happens: a node that refuses it may be chosen
// again. So the condition ReplicasInterrupted remembers since when such things
// happen, and when pods were last made again after one; the next ones wait for
// as long as it has lasted. All of that is in the status, so that it outlives the
// operator.

// calmAfter is how long nothing befalls the pods of a job, all of which are
// ready, before what befell them is past.
const calmAfter = time.Minute

// pauseInterrupted makes pods wait that end again soon by what befalls them.
func pauseInterrupted(p *pass) outcome {
	if interrupted := p.interruptedSeats(); len(interrupted) > 0 {
		p.pausing = !p.mayGoOn(interrupted)
	}
	return goOn
}

// interrupted is a pod that ended by what befell it, and is still there.
type interrupted struct {
	pod  *corev1.Pod
	task v2alpha1.TaskType
}

// interruptedSeats returns the pods of the wanted replicas that were interrupted.
func (p *pass) interruptedSeats() []interrupted {
	var found []interrupted
	for i := range p.roster.Seats {
		seat := &p.roster.Seats[i]
		if pod := p.pods[seat.Pod]; pod != nil && podstate.FailedOrLost(pod) && !podstate.Terminating(pod) && !hasFailed(p.Job, pod) {
			found = append(found, interrupted{pod, p.Job.Spec.Tasks[seat.Task].Type})
		}
	}
	return found
}

// mayGoOn tells whether interrupted pods may be made again now, and then says
// what befell them; else it has the job looked at when they may.
func (p *pass) mayGoOn(found []interrupted) bool {
	if left := p.pauseLeft(); left > 0 {
		p.requeueAfter(left)
		return false
	}
	p.tellOfInterruption(found)
	return true
}

// tellOfInterruption says what befell pods that are made again under their names.
func (p *pass) tellOfInterruption(found []interrupted) {
	pods := make([]*corev1.Pod, len(found))
	for i, each := range found {
		pods[i] = each.pod
		p.recordFailure(each.task, each.pod)
	}
	recorded := p.recordInterruption(pods, "it is made again and not counted")
	recorded.Message += fmt.Sprintf(", the next one after a pause of %s", pauseAfter(recorded))
	p.event(corev1.EventTypeWarning, recorded.Reason, recorded.Message)
}

// recordInterruption sets the condition that says what befell pods, and what
// comes of it.
func (p *pass) recordInterruption(pods []*corev1.Pod, outcome string) *v2alpha1.DIJobCondition {
	const condition = v2alpha1.ConditionReplicasInterrupted
	reason := failureReason(p.Job, pods[0])
	conditions.Set(p.status(), condition, corev1.ConditionTrue, reason, "", p.Now)
	recorded := conditions.Find(p.status(), condition)
	recorded.LastUpdateTime = &p.now
	recorded.Message = describeInterruption(pods[0], reason, len(pods)-1) + "; " + outcome
	return recorded
}

// describeInterruption says what befell a pod, and how many others.
func describeInterruption(pod *corev1.Pod, reason string, others int) string {
	text := fmt.Sprintf("pod %s ended by what befell it (%s)", pod.Name, cmp.Or(pod.Status.Reason, reason))
	if reason == v2alpha1.ReasonLeft {
		text = fmt.Sprintf("pod %s left with exit code %d", pod.Name, exitTerminated)
	}
	if pod.Status.Message != "" {
		text += beforeQuote + podstate.LastLine(pod.Status.Message) + `"`
	}
	if others > 0 {
		text += ", and so did " + morePods(others)
	}
	return text
}

// pauseLeft returns how long what was interrupted is still to wait; 0 for what
// is the first in a while. A clock that was set back does not hold it up.
func (p *pass) pauseLeft() time.Duration {
	recorded := conditions.Find(p.status(), v2alpha1.ConditionReplicasInterrupted)
	if recorded == nil || recorded.Status != corev1.ConditionTrue || recorded.LastUpdateTime == nil {
		return 0
	}
	since := p.Now.Sub(recorded.LastUpdateTime.Time)
	if since < 0 {
		return 0
	}
	return pauseAfter(recorded) - since
}

// pauseAfter returns how long the next pods wait: as long as interruptions have
// lasted, so that the pauses double.
func pauseAfter(recorded *v2alpha1.DIJobCondition) time.Duration {
	var lasted time.Duration
	if recorded.LastTransitionTime != nil && recorded.LastUpdateTime != nil {
		lasted = recorded.LastUpdateTime.Sub(recorded.LastTransitionTime.Time)
	}
	return min(max(lasted, firstPause), longestPause)
}

// calmDown clears the condition when what befell pods is past: all are ready,
// and nothing has befallen any for a while.
func (p *pass) calmDown() {
	const condition = v2alpha1.ConditionReplicasInterrupted
	recorded := conditions.Find(p.status(), condition)
	if recorded == nil || recorded.Status != corev1.ConditionTrue {
		return
	}
	if !IsFinished(p.status()) && !IsSuspended(p.Job) {
		if recorded.LastUpdateTime == nil || p.pausing || !p.isAllReady() {
			return
		}
		calm := recorded.LastUpdateTime.Add(max(pauseAfter(recorded), calmAfter))
		if left := calm.Sub(p.Now); left > 0 {
			p.requeueAfter(left)
			return
		}
	}
	conditions.Clear(p.status(), condition, p.Now)
}

// isAllReady tells whether every wanted replica is ready or has succeeded, which
// none is while a restart is under way; of a coordinator-led job, whether the
// coordinator runs.
func (p *pass) isAllReady() bool {
	if IsCoordinatorLed(p.Job) {
		coordinator := p.coordinator()
		return coordinator != nil && coordinator.Status.Phase == corev1.PodRunning
	}
	isSeated := len(p.roster.Seats) == int(p.counts.total)
	return isSeated && !slices.ContainsFunc(p.roster.Seats, func(seat workload.Seat) bool {
		pod := p.pods[seat.Pod]
		return !p.completed().has(seat.Rank) && (pod == nil || !podstate.Ready(pod))
	})
}
