// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package excess decides which pods of a coordinator-led job are deleted by intent: those of removed members, those that a
// ScalePlan migrates and those that need other resources.
package excess

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// Stage decides which pods are deleted by intent.
type Stage struct {
	out      *state.Plan
	in       *state.Input
	facts    *observed.Facts
	removals handshake.Removals
	sizes    *rightsize.Rules
	// slots are those of the job by name, and members the pods with ranks by slot, also of slots that were removed.
	slots   map[string]*slots.Slot
	members map[string][]*corev1.Pod
}

// New returns the rules of pods that are deleted by intent.
func New(out *state.Plan, job *observed.Facts, shake *handshake.Handshake) *Stage {
	s := &Stage{
		out: out, in: job.In, facts: job, removals: handshake.NewRemovals(shake), sizes: rightsize.New(out, job.In),
		slots: make(map[string]*slots.Slot, len(job.Slots)), members: map[string][]*corev1.Pod{},
	}
	for i := range job.Slots {
		if slot := &job.Slots[i]; s.slots[slot.Member.Slot] == nil {
			s.slots[slot.Member.Slot] = slot
		}
	}
	for _, pod := range job.In.Pods {
		if podstate.Rank(pod) > 0 {
			s.members[slots.Of(pod)] = append(s.members[slots.Of(pod)], pod)
		}
	}
	return s
}

// Removals returns the pods that these rules want to release.
func (s *Stage) Removals() handshake.Removals { return s.removals }

// Rules are the rules of pods that are deleted by intent, in order.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "excess pods are deleted", Apply: s.removeMembers},
		{Name: "pods that a ScalePlan migrates are deleted", Apply: s.migrate},
		{Name: "unschedulable replicas request less", Apply: s.shrinkPending},
		{Name: "pods get their recorded resources", Apply: s.applyResources},
	}
}

// removeMembers deletes the pods that belong to no slot, and the services whose pods are
// gone. Without a Membership it deletes nothing.
func (s *Stage) removeMembers() state.Result {
	if !s.facts.IsKnown || !s.in.Confirmed {
		return state.Continue
	}
	going := map[string]bool{}
	for _, pod := range s.facts.Excess() {
		mayRemove := s.mayRemove(pod)
		if left := s.drainLeft(slots.Of(pod)); left > 0 {
			s.out.RequeueAfter(left)
			continue
		}
		if !mayRemove {
			continue
		}
		going[pod.Name] = true
		s.out.DeletePod(pod)
	}
	for _, service := range s.in.Services {
		pod := s.in.PodNamed[service.Name]
		if !s.facts.Wanted[service.Name] && (pod == nil || podstate.Terminating(pod) || going[pod.Name]) {
			s.out.DeleteService(service)
		}
	}
	return state.Continue
}

// drainLeft returns the rest of the drain time of a pod whose slot was removed or reported failed; 0 for a
// lost pod that is replaced. The record of a failure report has the URLs of the replacements, or of a unit's
// learners. A removal counts without its record: that of a slot that was reported before has these URLs, too.
func (s *Stage) drainLeft(name string) time.Duration {
	slot := s.slots[name]
	if slot == nil {
		return s.in.RemovalSeen(name).Add(s.in.Drain).Sub(s.in.Now)
	}
	fills := func(url string) bool { return slices.Contains(slot.Pods, names.PodOfURL(url)) }
	var reported time.Time
	for i := range s.in.Membership.Spec.Requests {
		request := &s.in.Membership.Spec.Requests[i]
		urls := slices.Concat(request.Collectors, request.Learners)
		// Its own time is by the clock of a di-server.
		if seen := s.in.RequestSeen(request); slices.ContainsFunc(urls, fills) && seen.After(reported) {
			reported = seen
		}
	}
	return reported.Add(s.in.Drain).Sub(s.in.Now)
}

// mayRemove reports whether an excess pod may be deleted. The pods of a removed slot are deleted once its
// member may be. A pod that is replaced was lost or reported failed, and has no state to hand over.
func (s *Stage) mayRemove(pod *corev1.Pod) bool {
	return s.slots[slots.Of(pod)] != nil || s.mayRelease(pod)
}

// mayRelease reports whether a pod may be deleted or replaced by intent now. The pods of a unit are, once its
// aggregator is.
func (s *Stage) mayRelease(pod *corev1.Pod) bool {
	for _, other := range s.members[slots.Of(pod)] {
		if !s.removals.MayRelease(other) {
			return false
		}
	}
	return true
}

// migrate deletes the pods that a plan replaces. A unit is replaced whole.
func (s *Stage) migrate() state.Result {
	scaling.NewExecution(s.out, s.in).Migrate(s.mayRelease)
	return state.Continue
}

// sizedReplicas returns the replicas of pods that are not excess.
func (s *Stage) sizedReplicas() iter.Seq[rightsize.Replica] {
	return func(yield func(rightsize.Replica) bool) {
		for replica := range s.facts.Replicas() {
			if s.facts.Wanted[replica.Pod.Name] && !yield(replica) {
				return
			}
		}
	}
}

// shrinkPending records fewer resources for replicas that the scheduler has found no node for.
func (s *Stage) shrinkPending() state.Result {
	s.sizes.ShrinkPending(s.sizedReplicas())
	return state.Continue
}

// applyResources gives the pods their recorded resources.
func (s *Stage) applyResources() state.Result {
	if len(s.out.Scaling().Resources) > 0 {
		s.sizes.Apply(s.sizedReplicas(), replacement{s})
	}
	return state.Continue
}

// replacement decides which replicas may be replaced for other resources.
type replacement struct{ of *Stage }

// MayRelease implements rightsize.Replacement. A deleted pod counts as lost, so its URL stays advertised
// next to that of its replacement.
func (r replacement) MayRelease(pod *corev1.Pod) bool { return r.of.mayRelease(pod) }

// IsForced implements rightsize.Replacement: a kubelet that restarts a container does not give it more
// memory.
func (r replacement) IsForced(replica *rightsize.Replica) bool {
	return rightsize.WasOutOfMemory(replica.Pod) && (r.of.sizes.HasGrown(replica) || rightsize.IsResizing(replica.Pod))
}

// AreOthersReady implements rightsize.Replacement.
func (r replacement) AreOthersReady(replica *rightsize.Replica) bool {
	isUnready := func(name string) bool {
		pod := r.of.in.PodNamed[name]
		return pod == nil || r.of.out.Deleting[pod] || !podstate.Ready(pod)
	}
	return !slices.ContainsFunc(r.of.facts.Slots, func(slot slots.Slot) bool {
		isOther := workload.MemberID(r.of.in.Job, slot.Member).Task == replica.Task && slot.Member.Slot != replica.Slot
		return isOther && slices.ContainsFunc(slot.Pods, isUnready)
	})
}
