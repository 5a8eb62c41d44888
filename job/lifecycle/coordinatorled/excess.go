// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package coordinatorled

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
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
func FindUnconfirmed(observed state.Observed) Unconfirmed {
	var unconfirmed Unconfirmed
	if !state.IsCoordinatorLed(observed.Job) || state.IsLeftAlone(observed.Job) || state.IsFinished(&observed.Job.Status) {
		return unconfirmed
	}
	in := state.NewInput(observed)
	p := New(state.NewPlan(in), in)
	if !p.isKnown {
		isNew := observed.Job.Status.Phase == "" && len(observed.Pods) == 0
		unconfirmed.AllPods = observed.Membership == nil && !isNew && !state.IsSuspended(observed.Job)
		unconfirmed.Membership = unconfirmed.AllPods
		return unconfirmed
	}
	for i := range p.slots {
		if p.slots[i].isShadowed || !p.missing(&p.slots[i]) {
			continue
		}
		for _, name := range p.slots[i].pods {
			if p.in.PodNamed[name] == nil {
				unconfirmed.Pods = append(unconfirmed.Pods, name)
			}
		}
	}
	unconfirmed.Membership = len(unconfirmed.Pods) > 0 || len(p.excessPods(p.slots)) > 0
	return unconfirmed
}

// LacksRemoved reports whether members were removed that the operator had pods of, and the cache may lack these. The next
// status forgets the members.
func LacksRemoved(observed state.Observed) bool {
	list := observed.Membership
	if list == nil || list.Spec.JobUID != observed.Job.UID || state.IsFinished(&observed.Job.Status) || state.IsSuspended(observed.Job) {
		return false
	}
	members, pods := map[string]bool{}, map[string]*corev1.Pod{}
	for i := range list.Spec.Members {
		members[list.Spec.Members[i].Slot] = true
	}
	for _, pod := range observed.Pods {
		pods[pod.Name] = pod
	}
	return slices.ContainsFunc(list.Status.Slots, func(slot v2alpha1.SlotStatus) bool {
		pod := pods[slot.ObservedPod]
		// An aggregator has pods beside it.
		return !members[slot.Slot] && slot.ObservedPod != "" && (pod == nil || names.RoleOf(pod) == names.ReplicaTypeAggregator)
	})
}

// excessPods returns the pods that belong to no slot. A pod without a slot is foreign.
func (p *Plan) excessPods(slots []slot) []*corev1.Pod {
	wanted := p.wantedNames(slots)
	var excess []*corev1.Pod
	for _, pod := range p.in.Pods {
		if !wanted[pod.Name] && slotOf(pod) != "" && !podstate.Terminating(pod) {
			excess = append(excess, pod)
		}
	}
	return excess
}

func (p *Plan) wantedNames(slots []slot) map[string]bool {
	wanted := map[string]bool{names.CoordinatorPod(p.in.Job.Name): true}
	for i := range slots {
		for _, name := range slots[i].pods {
			wanted[name] = true
		}
	}
	return wanted
}

// removeExcessMembers deletes the pods that belong to no slot, and the services whose pods are
// gone. Without a Membership it deletes nothing.
func (p *Plan) removeExcessMembers() state.Result {
	if !p.isKnown || !p.in.Confirmed {
		return state.Continue
	}
	going := map[string]bool{}
	for _, pod := range p.excessPods(p.slots) {
		mayRemove := p.mayRemove(pod, p.slots)
		if left := p.drainLeft(slotOf(pod), p.slots); left > 0 {
			p.out.RequeueAfter(left)
			continue
		}
		if !mayRemove {
			continue
		}
		going[pod.Name] = true
		p.out.DeletePod(pod)
	}
	wanted := p.wantedNames(p.slots)
	for _, service := range p.in.Services {
		pod := p.in.PodNamed[service.Name]
		if !wanted[service.Name] && (pod == nil || podstate.Terminating(pod) || going[pod.Name]) {
			p.out.DeleteService(service)
		}
	}
	return state.Continue
}

// drainLeft returns the rest of the drain time of a pod whose slot was removed on request; 0 for a
// lost pod. The record of a removal has the URL of the slot's replica, or of a unit's aggregator.
// The record of a failure report has the URLs of the replacements.
func (p *Plan) drainLeft(name string, slots []slot) time.Duration {
	fills := func(url string) bool {
		pod := p.in.PodNamed[names.PodOfURL(url)]
		return pod != nil && slotOf(pod) == name
	}
	if i := slices.IndexFunc(slots, func(s slot) bool { return s.member.Slot == name }); i >= 0 {
		fills = func(url string) bool { return slices.Contains(slots[i].pods, names.PodOfURL(url)) }
	}
	var removed time.Time
	for i := range p.in.Membership.Spec.Requests {
		request := &p.in.Membership.Spec.Requests[i]
		urls := slices.Concat(request.Collectors, request.Learners)
		// Its own time is by the clock of a di-server.
		if seen := p.in.RequestSeen(request); slices.ContainsFunc(urls, fills) && seen.After(removed) {
			removed = seen
		}
	}
	return removed.Add(p.in.Drain).Sub(p.in.Now)
}
