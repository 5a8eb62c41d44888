// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package losses finds the slots of a coordinator-led job whose pods are lost, and records the state of all slots.
package losses

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// A replica that fails repeatedly is replaced with an exponential backoff, as the
// kubelet restarts containers.
const (
	firstReplacementDelay = 10 * time.Second
	lastReplacementDelay  = 5 * time.Minute
)

// Losses are the slots that need new pods.
type Losses struct {
	// Slots tells for each slot of the job whether its pod, or any pod of its unit, is lost.
	Slots []bool
	// Wait is after how long the next failed pod may be replaced; 0 for none.
	Wait time.Duration
	// IsBackingOff is set if a disrupted pod is among those that wait.
	IsBackingOff bool
}

// Find returns the losses of a job.
func Find(job *observed.Facts, queue *groups.Plan) Losses {
	found := Losses{Slots: make([]bool, len(job.Slots))}
	for i := range job.Slots {
		if s := &job.Slots[i]; !s.IsShadowed {
			found.Slots[i] = found.isLost(job.In, queue, s)
		}
	}
	return found
}

// isLost reports whether a slot needs new pods.
func (l *Losses) isLost(in *state.Input, queue *groups.Plan, s *slots.Slot) bool {
	if s.IsMissing(in) {
		return in.Confirmed && !slices.ContainsFunc(s.Pods, func(name string) bool { return isStray(in, name) })
	}
	for _, name := range s.Pods {
		pod := in.PodNamed[name]
		if pod == nil {
			continue
		}
		if podstate.Terminating(pod) || queueing.IsAbandoned(pod) || queue.IsOfFormerGroup(s, pod) || pod.Status.Phase == corev1.PodFailed && l.mayReplace(in, pod, s.Recorded.Losses) {
			return true
		}
	}
	return false
}

// isStray reports whether a pod of the name runs without an owner.
func isStray(in *state.Input, name string) bool {
	_, is := in.Strays[name]
	return is
}

// mayReplace reports whether the backoff of a failed pod is over. A disruption may affect the next
// pod as well, so it backs off, too, unless the pod ran for that long.
func (l *Losses) mayReplace(in *state.Input, pod *corev1.Pod, lost int32) bool {
	if lost == 0 {
		return true
	}
	since, isDisrupted := podstate.FinishTime(pod), podstate.Disrupted(pod)
	if isDisrupted {
		since = pod.CreationTimestamp.Time
	}
	delay := min(firstReplacementDelay<<min(lost-1, 10), lastReplacementDelay)
	left := in.DelayLeft(pod, since, delay)
	if left <= 0 {
		return true
	}
	l.IsBackingOff = l.IsBackingOff || isDisrupted
	l.Wait = state.Sooner(l.Wait, left)
	return false
}

// Stage records the state of the slots.
type Stage struct {
	out    *state.Plan
	in     *state.Input
	facts  *observed.Facts
	losses Losses
	queue  *groups.Plan
}

// New returns the rules of the state of slots.
func New(out *state.Plan, job *observed.Facts, found Losses, queue *groups.Plan) *Stage {
	return &Stage{out: out, in: job.In, facts: job, losses: found, queue: queue}
}

// Rules are the rules of the state of slots.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{{Name: "the state of the replicas is recorded", Apply: s.record}}
}

// record records the state of the replicas. It only counts a loss. The new name follows from
// that record in the next reconcile.
func (s *Stage) record() state.Result {
	if !s.facts.IsKnown {
		return state.Continue
	}
	s.out.RequeueAfter(s.losses.Wait)
	wanted := v2alpha1.MembershipStatus{Members: int32(len(s.facts.Slots)), Groups: s.queue.Groups, LastGroup: s.queue.Last}
	given := maps.Clone(s.facts.Wanted)
	for i := range s.facts.Slots {
		status := s.statusOf(i, given)
		wanted.Slots = append(wanted.Slots, status)
		wanted.Losses = limits.Sum(wanted.Losses, status.Losses)
	}
	s.reportLosses()
	if !equality.Semantic.DeepEqual(wanted, s.in.Membership.Status) {
		s.out.Decision.MembershipStatus = &wanted
	}
	return state.Continue
}

// statusOf returns the next status of a slot. It adds the names of its next pods to those that are given.
func (s *Stage) statusOf(at int, given map[string]bool) v2alpha1.SlotStatus {
	slot := &s.facts.Slots[at]
	status := slot.Recorded
	status.Phase, status.Rank = "", s.facts.Ranks[slot.Member.Slot]
	status.Group, status.Shape = s.queue.Slots[at].Group, s.queue.Slots[at].Shape
	if pod := s.in.PodNamed[slot.Pod]; pod != nil && !slot.IsShadowed {
		status.Phase = podstate.Phase(pod)
		port := names.DIPort(&pod.Spec, membership.Role(slot.Member))
		status.Ports = membership.RecordPort(slot.Recorded.Ports, limits.Sum(slot.Member.FailureReports, slot.Recorded.Losses), port)
	}
	switch {
	case slot.IsShadowed, s.losses.Slots[at]:
		// A slot that is shadowed never had a pod of this name, and gets the next name.
		status.Losses = s.nextLoss(slot, given)
	case slot.IsComplete(s.in):
		status.ObservedPod = slot.Pod
	}
	return status
}

// nextLoss returns the next count of losses, after the recorded one, that gives the slot names that
// are free.
func (s *Stage) nextLoss(slot *slots.Slot, given map[string]bool) int32 {
	lost := slot.Recorded.Losses
	isGiven := func(name string) bool { return given[name] || s.in.PodNamed[name] != nil }
	for lost < limits.Losses {
		lost++
		if pods := membership.PodNames(s.in.Job.Name, slot.Member, lost); !slices.ContainsFunc(pods, isGiven) {
			for _, name := range pods {
				given[name] = true
			}
			break
		}
	}
	return lost
}

// reportLosses records an event for each lost slot, and the condition for those that were disrupted.
func (s *Stage) reportLosses() {
	var disrupted []*corev1.Pod
	for i := range s.facts.Slots {
		if s.losses.Slots[i] {
			s.reportLoss(&s.facts.Slots[i])
			disrupted = append(disrupted, s.disruptedPods(&s.facts.Slots[i])...)
		}
	}
	if len(disrupted) > 0 {
		disruptions.New(s.out, s.in).RecordDisruption(disrupted, "replacing it by a pod with a new name, later each time")
	}
}

// reportLoss records an event for the lost pod of a slot.
func (s *Stage) reportLoss(slot *slots.Slot) {
	for _, name := range slot.Pods {
		how := s.howLost(slot, s.in.PodNamed[name])
		if how == "" {
			continue
		}
		message := fmt.Sprintf("pod %s %s", name, how)
		if len(slot.Pods) > 1 {
			message += fmt.Sprintf(", and its unit of aggregator %s is replaced whole", slot.Pod)
		}
		s.out.Decision.Losses = append(s.out.Decision.Losses, state.Event{
			Type: corev1.EventTypeWarning, Reason: v2alpha1.ReasonReplicaLost, Pod: name,
			Message: message + "; replacing it by a pod with a new name",
		})
		return
	}
}

// howLost describes how a pod was lost, "" for one that was not.
func (s *Stage) howLost(slot *slots.Slot, pod *corev1.Pod) string {
	message, evicted := "", false
	if pod != nil {
		message, evicted = queueing.Eviction(pod)
	}
	switch {
	case pod == nil:
		return "is gone"
	case evicted:
		return "is evicted by Kueue: " + message
	case podstate.Terminating(pod):
		return "is being deleted"
	case pod.Status.Phase == corev1.PodFailed:
		return "has failed" + podstate.FailureCause(pod)
	case queueing.IsAbandoned(pod), s.queue.IsOfFormerGroup(slot, pod):
		return "queues in a group of Kueue that is over"
	}
	return ""
}

// disruptedPods returns the pods of a slot that were disrupted.
func (s *Stage) disruptedPods(slot *slots.Slot) []*corev1.Pod {
	var found []*corev1.Pod
	for _, name := range slot.Pods {
		if pod := s.in.PodNamed[name]; pod != nil && !podstate.Terminating(pod) && podstate.Disruption(pod) != "" {
			found = append(found, pod)
		}
	}
	return found
}
