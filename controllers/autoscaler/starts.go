// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/podstate"
)

// stuckAfter is how long a producer must be observed unschedulable before the rule no longer counts on it.
const stuckAfter = 2 * time.Minute

// starts are the starts of producers, by the UID of the pod.
type starts map[types.UID]start

// start is what the autoscaler has observed of a pod, by its own clock. Those of the API server, the scheduler and the
// nodes may differ from it and from each other.
type start struct {
	// firstSeen is when the pod was observed first, and readyAfter how much later it was observed ready: 0 if it is not,
	// or was so at first.
	firstSeen  time.Time
	readyAfter time.Duration
	// unscheduledSince is since when it has been observed without a node; zero if it has one.
	unscheduledSince time.Time
}

// next returns what is known of a pod after it was observed again.
func (s start) next(pod *corev1.Pod, now time.Time) start {
	isNew := s.firstSeen.IsZero()
	if isNew {
		s.firstSeen = now
	}
	if podstate.Ready(pod) && s.readyAfter == 0 && !isNew {
		s.readyAfter = now.Sub(s.firstSeen)
	}
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	switch {
	case scheduled == nil || scheduled.Status != corev1.ConditionFalse:
		s.unscheduledSince = time.Time{}
	case s.unscheduledSince.IsZero():
		s.unscheduledSince = now
	}
	return s
}

// isStuck reports whether the pod has had no node for stuckAfter: the rule must not wait for it.
func (s start) isStuck(now time.Time) bool {
	return !s.unscheduledSince.IsZero() && now.Sub(s.unscheduledSince) > stuckAfter
}

// delay returns how long the pod has taken to start: at least what its kubelet says, which compares times of one clock,
// and what was observed from its first sight on.
func (s start) delay(pod *corev1.Pod, now time.Time) time.Duration {
	ready := conditions.OfPod(pod, corev1.PodReady)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		return now.Sub(s.firstSeen)
	}
	if pod.Status.StartTime == nil {
		return s.readyAfter
	}
	return max(s.readyAfter, ready.LastTransitionTime.Sub(pod.Status.StartTime.Time))
}

// isCrashing reports whether the main container of a pod fails again and again.
func isCrashing(pod *corev1.Pod) bool {
	main := podstate.MainContainer(pod)
	return main != nil && main.State.Waiting != nil && main.State.Waiting.Reason == podstate.CrashLoopBackOff
}
