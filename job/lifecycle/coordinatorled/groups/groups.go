// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package groups decides in which of Kueue's groups the members of a coordinator-led job queue.
package groups

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// The coordinator queues by itself, because it decides how many members there are. Members that are added together are
// a group, as added replicas of a worker-led job are. The status of the Membership records the group of each slot
// before its pods exist. Members that were recorded without a group, by an earlier release or without Kueue, stay
// without one.
//
// A new pod of a slot joins the group of the slot while that has a place for it. If members leave a group that waits,
// the rest of it is a new group. If they leave an admitted one, the others run on, and Kueue keeps the quota of those
// that left. The next members of their shapes get these places.

// Plan is in which groups the members queue.
type Plan struct {
	facts *observed.Facts
	start queueing.Start
	// isQueued is set if new pods of the job queue.
	isQueued bool
	// Slots are the group and the shape of each slot of the job.
	Slots []Place
	// Groups are the groups to record, and Last is the number of the last one.
	Groups []v2alpha1.MemberGroup
	Last   int32
	// pods are those of each group, and taken counts the places that they take.
	pods  map[int32][]*corev1.Pod
	taken map[int32]int
	// recorded are the recorded states of slots.
	recorded map[string]v2alpha1.SlotStatus
	// gone are the shapes of the recorded slots that the job no longer has, by their groups.
	gone map[int32][]string
}

// Place is the place of a slot.
type Place struct {
	// Group is the number of its group, 0 for none. Shape identifies what its pods request; "" without a queue.
	Group int32
	Shape string
}

// Find finds the groups of a job's members.
func Find(job *observed.Facts) *Plan {
	p := &Plan{facts: job, isQueued: job.In.Queued().Queue != "", Slots: make([]Place, len(job.Slots)), pods: map[int32][]*corev1.Pod{}, taken: map[int32]int{}}
	if !job.IsKnown {
		return p
	}
	p.recorded = slots.Recorded(&job.In.Membership.Status)
	p.gone = p.goneSlots()
	p.start = queueing.Start{Job: job.In.Job.Name, UID: job.In.Membership.UID}
	for _, pod := range job.In.Pods {
		if number, isGrouped := p.number(pod); isGrouped {
			p.pods[number] = append(p.pods[number], pod)
			if queueing.TakesPlace(pod) {
				p.taken[number]++
			}
		}
	}
	p.regroup()
	return p
}

// number returns the number of the group that a pod records, and whether the operator created that group.
func (p *Plan) number(pod *corev1.Pod) (int32, bool) {
	return queueing.FromPod(pod).Number(p.start)
}

// regroup decides what happens to each recorded group, and adds those of new members.
func (p *Plan) regroup() {
	list := &p.facts.In.Membership.Status
	p.Last = list.LastGroup
	if !p.isQueued {
		p.keep(list)
		return
	}
	var pending [][]int
	for i := range list.Groups[:min(len(list.Groups), limits.GrowthGroups)] {
		group := list.Groups[i]
		members, left := p.membersOf(group.Number)
		isOver := false
		group.Created, isOver = queueing.StateOf(p.pods[group.Number], group.Created)
		switch {
		case isOver, len(left) > 0 && !p.isAdmitted(group.Number):
			pending = append(pending, members)
			continue
		case len(members) == 0:
			continue
		}
		group.Free = slices.Concat(group.Free, left)
		p.Groups = append(p.Groups, group)
		for _, at := range members {
			p.Slots[at] = Place{Group: group.Number, Shape: p.facts.Slots[at].Recorded.Shape}
		}
	}
	for _, members := range append(pending, p.fill(p.added())) {
		p.add(members)
	}
}

// keep keeps what is recorded, while new pods do not queue.
func (p *Plan) keep(list *v2alpha1.MembershipStatus) {
	p.Groups = list.Groups
	for at := range p.facts.Slots {
		recorded := &p.facts.Slots[at].Recorded
		p.Slots[at] = Place{Group: recorded.Group, Shape: recorded.Shape}
	}
}

// membersOf returns the slots that are and stay in a group, and the shapes of those that leave it. A slot whose next pods
// request something else leaves: Kueue admitted the group for what it requested before.
func (p *Plan) membersOf(group int32) (members []int, left []string) {
	left = slices.Clone(p.gone[group])
	for at := range p.facts.Slots {
		slot := &p.facts.Slots[at]
		switch {
		case slot.Recorded.Group != group:
		case p.isUngrouped(slot), p.changesShape(slot) && p.isAdmitted(group):
			left = append(left, slot.Recorded.Shape)
		default:
			if p.changesShape(slot) {
				left = append(left, slot.Recorded.Shape)
			}
			members = append(members, at)
		}
	}
	return members, left
}

// goneSlots returns the shapes of the recorded slots that the job no longer has, by their groups.
func (p *Plan) goneSlots() map[int32][]string {
	isMember := map[string]bool{}
	for at := range p.facts.Slots {
		isMember[p.facts.Slots[at].Member.Slot] = true
	}
	gone := map[int32][]string{}
	for i := range p.facts.In.Membership.Status.Slots {
		if recorded := &p.facts.In.Membership.Status.Slots[i]; !isMember[recorded.Slot] {
			gone[recorded.Group] = append(gone[recorded.Group], recorded.Shape)
		}
	}
	return gone
}

// changesShape reports whether the next pods of a slot, which has none, request something else than its group has.
func (p *Plan) changesShape(slot *slots.Slot) bool {
	return !p.hasPods(slot) && slot.Recorded.Shape != p.shapeOf(slot)
}

// isUngrouped reports whether a slot has pods, and all were created without a group.
func (p *Plan) isUngrouped(slot *slots.Slot) bool {
	return p.hasPods(slot) && !slices.ContainsFunc(slot.Pods, func(name string) bool {
		pod := p.facts.In.PodNamed[name]
		return pod != nil && queueing.FromPod(pod).Group != ""
	})
}

func (p *Plan) hasPods(slot *slots.Slot) bool {
	return slices.ContainsFunc(slot.Pods, func(name string) bool { return p.facts.In.PodNamed[name] != nil })
}

// isAdmitted reports whether Kueue has admitted a group.
func (p *Plan) isAdmitted(group int32) bool {
	return slices.ContainsFunc(p.pods[group], func(pod *corev1.Pod) bool {
		return queueing.IsInLine(pod) && podstate.Active(pod) && !queueing.IsWaiting(pod)
	})
}

// added returns the slots that are new and queue in a group. Members that must hand over their state before they leave
// queue each by itself.
func (p *Plan) added() []int {
	var added []int
	for at := range p.facts.Slots {
		slot := &p.facts.Slots[at]
		if _, isRecorded := p.recorded[slot.Member.Slot]; !isRecorded && !p.hasPods(slot) && !p.facts.Drains(slot.Member.Task) {
			added = append(added, at)
		}
	}
	return added
}

// fill gives new members the free places of their shapes, and returns the others.
func (p *Plan) fill(added []int) []int {
	return slices.DeleteFunc(added, func(at int) bool {
		shape := p.shapeOf(&p.facts.Slots[at])
		for i := range p.Groups {
			group := &p.Groups[i]
			if free := slices.Index(group.Free, shape); free >= 0 {
				group.Free = slices.Delete(slices.Clone(group.Free), free, free+1)
				p.Slots[at] = Place{Group: group.Number, Shape: shape}
				return true
			}
		}
		return false
	})
}

// add adds a group of members, or members that queue each by itself.
func (p *Plan) add(members []int) {
	size := 0
	for _, at := range members {
		size += len(p.facts.Slots[at].Pods)
	}
	sequence := queueing.Sequence{Last: p.Last, Groups: len(p.Groups)}
	number := sequence.Add(size)
	if number == 0 {
		return
	}
	p.Last = sequence.Last
	p.Groups = append(p.Groups, v2alpha1.MemberGroup{Number: number, Pods: int32(size)})
	for _, at := range members {
		p.Slots[at] = Place{Group: number, Shape: p.shapeOf(&p.facts.Slots[at])}
	}
}

// IsRecorded reports whether the group of a slot is recorded, so that its pods may be created.
func (p *Plan) IsRecorded(at int) bool {
	if !p.isQueued {
		return true
	}
	slot := &p.facts.Slots[at]
	_, isRecorded := p.recorded[slot.Member.Slot]
	return isRecorded && slot.Recorded.Group == p.Slots[at].Group && slot.Recorded.Shape == p.Slots[at].Shape
}

// Meta returns Kueue's metadata for a new pod of a slot, and whether its group has a place for it, beside pods that are
// created at the same time.
func (p *Plan) Meta(at, creating int) (meta queueing.PodMeta, hasPlace bool) {
	meta = p.facts.In.Queued()
	i := slices.IndexFunc(p.Groups, func(group v2alpha1.MemberGroup) bool { return group.Number == p.Slots[at].Group })
	if meta.Queue == "" || i < 0 {
		return meta, true
	}
	group := &p.Groups[i]
	if pods := p.pods[group.Number]; len(pods) > 0 {
		// All pods of a group queue where its first one does.
		meta = queueing.FromPod(pods[0]).Ungrouped()
	}
	return meta.Grouped(p.start, group.Number, int(group.Pods)), p.taken[group.Number]+creating < int(group.Pods)
}

// IsOfFormerGroup reports whether a pod of a slot is in another group than the slot is recorded in.
func (p *Plan) IsOfFormerGroup(slot *slots.Slot, pod *corev1.Pod) bool {
	number, isGrouped := p.number(pod)
	return isGrouped && number != slot.Recorded.Group
}

// Held returns the pods that only Kueue's finalizer keeps, without it. Kueue would keep them until their group has
// finished. An eviction is recorded first: the group is no longer among the recorded ones then.
func (p *Plan) Held() []*corev1.Pod {
	var held []*corev1.Pod
	for _, pod := range p.facts.In.Pods {
		number, _ := p.number(pod)
		_, evicted := queueing.Eviction(pod)
		isRecorded := p.facts.IsKnown && slices.ContainsFunc(p.facts.In.Membership.Status.Groups, func(group v2alpha1.MemberGroup) bool { return group.Number == number })
		if queueing.FromPod(pod).Group != "" && queueing.HasOnlyFinalizer(pod) && (!evicted || !isRecorded) {
			held = append(held, queueing.Release(pod))
		}
	}
	return held
}
