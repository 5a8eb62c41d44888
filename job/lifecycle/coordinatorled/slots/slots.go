// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slots reads the slots of a coordinator-led job from its Membership. Each member has a slot, which keeps its
// name while its pods are replaced.
package slots

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Slot is a member with its recorded status and its pods.
type Slot struct {
	Member *v2alpha1.Member
	// Recorded is its recorded status.
	Recorded v2alpha1.SlotStatus
	// Pod is the name of its current pod; for a unit, of its aggregator.
	Pod string
	// Pods are the names of all its pods, Pod first.
	Pods []string
	// IsShadowed is set if another slot has one of these names.
	IsShadowed bool
}

// Of returns the slot of a pod, "" for the coordinator and for pods that the operator has not
// created.
func Of(pod *corev1.Pod) string {
	return pod.Annotations[names.AnnotationSlot]
}

// Read returns the slots of a job's Membership, which is within its limits.
func Read(in *state.Input) []Slot {
	list := in.Membership
	slots, recorded := make([]Slot, len(list.Spec.Members)), Recorded(&list.Status)
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		status, isRecorded := recorded[member.Slot]
		if !isRecorded {
			status.Slot = member.Slot
		}
		pods := membership.PodNames(in.Job.Name, member, status.Losses)
		slots[i] = Slot{Member: member, Recorded: status, Pod: pods[0], Pods: pods}
	}
	for i, isShadowed := range findShadowed(in, slots) {
		slots[i].IsShadowed = isShadowed
	}
	return slots
}

// findShadowed finds slots that share a pod's name with another slot. This can happen because the
// names of replacements contain a short hash. The slot that the pod was created for keeps the name,
// else the first slot of the list.
func findShadowed(in *state.Input, slots []Slot) []bool {
	shadowed, owners := make([]bool, len(slots)), make(map[string]int, len(slots))
	for i := range slots {
		for _, name := range slots[i].Pods {
			first, isOwned := owners[name]
			if pod := in.PodNamed[name]; isOwned && pod != nil && Of(pod) == slots[i].Member.Slot {
				shadowed[first], isOwned = true, false
			}
			if isOwned {
				shadowed[i] = true
				continue
			}
			owners[name] = i
		}
	}
	return shadowed
}

// Excess describes which counts exceed the limits of a Membership, "" for none. di-server
// stays within the limits. Names and ports depend on these counts.
func Excess(members []v2alpha1.Member) string {
	if len(members) > limits.Members {
		return fmt.Sprintf("the Membership has %d members: must be at most %d", len(members), limits.Members)
	}
	pods := 0
	for i := range members {
		gpus := members[i].DDPGPUs
		if total := limits.Total(gpus...); len(gpus) > limits.GPUs || total > limits.GPUs {
			return fmt.Sprintf("member %s of the Membership is a learner of %s in %s: must be at most %d",
				members[i].Slot, english.Plural(int(total), "GPU", ""), english.Plural(len(gpus), "pod", ""), limits.GPUs)
		}
		pods += 1 + len(gpus)
	}
	if pods > limits.Replicas {
		return fmt.Sprintf("the Membership stands for %d pods: must be at most %d", pods, limits.Replicas)
	}
	return ""
}

// Recorded returns the recorded states of slots by name. If several are of a name, the first counts.
func Recorded(status *v2alpha1.MembershipStatus) map[string]v2alpha1.SlotStatus {
	recorded := make(map[string]v2alpha1.SlotStatus, len(status.Slots))
	for _, slot := range slices.Backward(status.Slots) {
		recorded[slot.Slot] = slot
	}
	return recorded
}

// IsMissing reports whether a pod of the slot existed and is gone. Either the slot is recorded as
// complete, or its remaining objects show that it was. A service shows that, because it is created
// after its pod was observed.
func (s *Slot) IsMissing(in *state.Input) bool {
	present, traced := 0, false
	for _, name := range s.Pods {
		if in.PodNamed[name] != nil {
			present++
			continue
		}
		service := in.ServiceNamed[name]
		traced = traced || service != nil && service.DeletionTimestamp.IsZero()
	}
	if s.Recorded.ObservedPod == s.Pod {
		return present < len(s.Pods)
	}
	return traced || in.PodNamed[s.Pod] == nil && present > 0
}

// IsComplete reports whether all pods of the slot exist.
func (s *Slot) IsComplete(in *state.Input) bool {
	return !slices.ContainsFunc(s.Pods, func(name string) bool { return in.PodNamed[name] == nil })
}

// The members of a job that holds state are its coordinator, of rank 0, and one pod of each slot: the
// replica, or the aggregator of a unit.

// Ranks returns the rank of each slot of a job that holds state; nil for other jobs. A slot keeps the
// recorded one, or that of its pod if the record is lost. A new slot gets the lowest rank that no slot and no
// pod has.
func Ranks(in *state.Input, slots []Slot) map[string]int32 {
	if !handshake.HasStateful(in.Job) {
		return nil
	}
	of, taken := make(map[string]int32, len(slots)), map[int32]bool{0: true}
	take := func(slot string, rank int32) {
		if rank > 0 && rank < limits.Replicas && !taken[rank] && of[slot] == 0 {
			of[slot], taken[rank] = rank, true
		}
	}
	for i := range slots {
		take(slots[i].Member.Slot, slots[i].Recorded.Rank)
	}
	for _, pod := range in.Pods {
		// A slot that the job no longer has keeps its rank while its pod exists.
		take(Of(pod), podstate.Rank(pod))
	}
	next := int32(1)
	for i := range slots {
		for taken[next] {
			next++
		}
		take(slots[i].Member.Slot, next)
	}
	return of
}
