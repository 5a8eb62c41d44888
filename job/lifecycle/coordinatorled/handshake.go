// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package coordinatorled

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// The members of a job that holds state are its coordinator, of rank 0, and one pod of each slot: the
// replica, or the aggregator of a unit.

// change identifies what a job desires, for removals that failed.
func change(in *state.Input) string {
	count := 0
	if in.Membership != nil {
		count = len(in.Membership.Spec.Members)
	}
	plan := ""
	if record := scaling.RecordOf(in.Job); record != nil {
		plan = record.UID
	}
	return fmt.Sprintf("%d/%d/%s", in.Job.Generation, count, plan)
}

// slotRanks returns the rank of each slot of a job that holds state; nil for other jobs. A slot keeps the
// recorded one, or that of its pod if the record is lost. A new slot gets the lowest rank that no slot and no
// pod has.
func (p *Plan) slotRanks(slots []slot) map[string]int32 {
	if !handshake.HasStateful(p.in.Job) {
		return nil
	}
	of, taken := make(map[string]int32, len(slots)), map[int32]bool{0: true}
	take := func(slot string, rank int32) {
		if rank > 0 && rank < limits.Replicas && !taken[rank] && of[slot] == 0 {
			of[slot], taken[rank] = rank, true
		}
	}
	for i := range slots {
		take(slots[i].member.Slot, slots[i].recorded.Rank)
	}
	for _, pod := range p.in.Pods {
		// A slot that the job no longer has keeps its rank while its pod exists.
		take(slotOf(pod), podstate.Rank(pod))
	}
	next := int32(1)
	for i := range slots {
		for taken[next] {
			next++
		}
		take(slots[i].member.Slot, next)
	}
	return of
}

// setRank gives a new pod of a job that holds state its rank.
func (p *Plan) setRank(pod *corev1.Pod, rank int32) {
	if pod != nil && handshake.HasStateful(p.in.Job) {
		workload.SetRank(pod, rank)
	}
}

// mayRemove reports whether an excess pod may be deleted. The pods of a removed slot are deleted once its
// member may be. A pod that is replaced was lost or reported failed, and has no state to hand over.
func (p *Plan) mayRemove(pod *corev1.Pod, slots []slot) bool {
	for i := range slots {
		if slots[i].member.Slot == slotOf(pod) {
			return true
		}
	}
	return p.mayRelease(pod)
}

// mayRelease reports whether a pod may be deleted or replaced by intent now. The pods of a unit are, once its
// aggregator is.
func (p *Plan) mayRelease(pod *corev1.Pod) bool {
	for _, other := range p.in.Pods {
		if slotOf(other) == slotOf(pod) && podstate.Rank(other) > 0 && !p.handshake.MayRelease(other) {
			return false
		}
	}
	return true
}

// publishMembership records the next version of the membership. Replicas that hold state join together.
func (p *Plan) publishMembership() state.Result {
	if !handshake.HasStateful(p.in.Job) {
		p.handshake.Publish(nil)
		return state.Continue
	}
	if !p.isKnown {
		return state.Continue
	}
	if p.out.Status().Scaling == nil {
		p.out.RecordScaling(&v2alpha1.ScalingStatus{})
	}
	incomplete := map[v2alpha1.TaskType]bool{}
	for i := range p.slots {
		s := &p.slots[i]
		if pod := p.in.PodNamed[s.name]; pod == nil || !podstate.Ready(pod) && !p.handshake.IsListed(pod) {
			incomplete[s.member.Task] = p.drains(s.member.Task)
		}
	}
	joining := map[string]bool{names.CoordinatorPod(p.in.Job.Name): true}
	for i := range p.slots {
		joining[p.slots[i].name] = !incomplete[p.slots[i].member.Task]
	}
	p.handshake.Publish(joining)
	return state.Continue
}

// drains reports whether the replicas of a task hold state.
func (p *Plan) drains(kind v2alpha1.TaskType) bool {
	for i := range p.in.Job.Spec.Tasks {
		if p.in.Job.Spec.Tasks[i].Type == kind {
			return p.in.Job.Spec.Tasks[i].Drain != nil
		}
	}
	return false
}
