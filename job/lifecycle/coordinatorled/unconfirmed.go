// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package coordinatorled

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// Unconfirmed lists the objects that need a live read before they are acted on, because the cache
// may be stale.
type Unconfirmed struct {
	// Membership is set if the cache shows excess or lost pods, or no Membership.
	Membership bool
	// AllPods is set if there is no Membership, so that one is rebuilt from the pods.
	AllPods bool
	// Pods are the names of pods that seem to be lost.
	Pods []string
}

// FindUnconfirmed returns the objects that Decide leaves unchanged until they are confirmed.
func FindUnconfirmed(seen state.Observed) Unconfirmed {
	var unconfirmed Unconfirmed
	if !state.IsCoordinatorLed(seen.Job) || state.IsLeftAlone(seen.Job) || state.IsFinished(&seen.Job.Status) {
		return unconfirmed
	}
	facts := observed.Observe(state.NewInput(seen))
	if !facts.IsKnown {
		isNew := seen.Job.Status.Phase == "" && len(seen.Pods) == 0
		unconfirmed.AllPods = seen.Membership == nil && !isNew && !state.IsSuspended(seen.Job)
		unconfirmed.Membership = unconfirmed.AllPods
		return unconfirmed
	}
	for i := range facts.Slots {
		slot := &facts.Slots[i]
		if slot.IsShadowed || !slot.IsMissing(facts.In) {
			continue
		}
		for _, name := range slot.Pods {
			if facts.In.PodNamed[name] == nil {
				unconfirmed.Pods = append(unconfirmed.Pods, name)
			}
		}
	}
	unconfirmed.Membership = len(unconfirmed.Pods) > 0 || len(facts.Excess()) > 0
	return unconfirmed
}

// LacksRemoved reports whether members were removed that the operator had pods of, and the cache may lack these. The next
// status forgets the members.
func LacksRemoved(seen state.Observed) bool {
	list := seen.Membership
	if list == nil || list.Spec.JobUID != seen.Job.UID || state.IsFinished(&seen.Job.Status) || state.IsSuspended(seen.Job) {
		return false
	}
	members, pods := map[string]bool{}, map[string]*corev1.Pod{}
	for i := range list.Spec.Members {
		members[list.Spec.Members[i].Slot] = true
	}
	for _, pod := range seen.Pods {
		pods[pod.Name] = pod
	}
	return slices.ContainsFunc(list.Status.Slots, func(slot v2alpha1.SlotStatus) bool {
		pod := pods[slot.ObservedPod]
		// An aggregator has pods beside it.
		return !members[slot.Slot] && slot.ObservedPod != "" && (pod == nil || names.RoleOf(pod) == names.ReplicaTypeAggregator)
	})
}
