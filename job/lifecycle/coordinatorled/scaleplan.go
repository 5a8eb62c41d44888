// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package coordinatorled

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// takePlan records the plan that the job executes next, once it has a Membership.
func (p *Plan) takePlan() state.Result {
	if !p.isKnown {
		return state.Continue
	}
	return p.execution.Take()
}

// editMembers requests the members of a plan from the Membership.
func (p *Plan) editMembers() state.Result {
	if !p.isKnown {
		return state.Continue
	}
	return p.execution.EditMembers()
}

// migrate deletes the pods that a plan replaces. A unit is replaced whole.
func (p *Plan) migrate() state.Result {
	for _, pod := range p.execution.Migrating() {
		if p.mayRelease(pod) {
			p.out.DeletePod(pod)
		}
	}
	return state.Continue
}

// leaveNode makes a pod avoid the node of the pod that a plan replaces by it.
func (p *Plan) leaveNode(s *slot, pod *corev1.Pod) *corev1.Pod {
	if pod != nil && s.recorded.Losses > 0 {
		p.in.Builder.LeaveNode(pod, membership.PodName(p.in.Job.Name, s.member, s.recorded.Losses-1))
	}
	return pod
}

// progressOfPlan returns what the executing plan waits for.
func (p *Plan) progressOfPlan(plan *v2alpha1.ScalePlan) scaling.Progress {
	record := p.execution.Record()
	switch {
	case state.IsSuspended(p.in.Job):
		return scaling.Progress{Missing: "the job is suspended"}
	case !p.isKnown || !record.Resized || p.out.Decision.UpdateMembership != nil:
		return scaling.Progress{Missing: "the members are not in the Membership yet"}
	}
	for _, pod := range p.in.Pods {
		if p.handshake.IsFailed(pod) {
			text := fmt.Sprintf("pod %s stays: its state was not handed over", pod.Name)
			return scaling.Progress{Missing: text, Failed: text}
		}
	}
	for task, wanted := range record.Replicas {
		isOf := func(s slot) bool { return names.NameOfType(&p.in.Job.Spec, s.member.Task) == task }
		if count := len(slices.DeleteFunc(slices.Clone(p.slots), func(s slot) bool { return !isOf(s) })); count != int(wanted) {
			text := fmt.Sprintf("another writer set %s of task %s after the plan had set %d", english.Plural(count, "member", ""), task, wanted)
			return scaling.Progress{Missing: text, Failed: text}
		}
	}
	return scaling.Progress{Missing: p.missingOfPlan(plan, p.slots)}
}

// missingOfPlan describes what is missing until the pods are as planned, "" for nothing.
func (p *Plan) missingOfPlan(plan *v2alpha1.ScalePlan, slots []slot) string {
	record := p.execution.Record()
	for _, migrated := range record.Migrations {
		if pod := p.in.PodNamed[migrated.Pod]; pod != nil && string(pod.UID) == migrated.UID {
			return fmt.Sprintf("pod %s is not replaced yet", migrated.Pod)
		}
	}
	for i := range slots {
		id := workload.MemberID(p.in.Job, slots[i].member)
		_, isCounted := record.Replicas[id.Task]
		isSized := slices.ContainsFunc(plan.Spec.Tasks, func(scale v2alpha1.TaskScale) bool { return scale.Name == id.Task })
		if !isCounted && !isSized && len(plan.Spec.Migrate) == 0 {
			continue
		}
		for _, name := range slots[i].pods {
			replica := rightsize.Replica{ReplicaID: id, Pod: p.in.PodNamed[name]}
			if replica.Pod != nil && names.RoleOf(replica.Pod) == names.ReplicaTypeAggregator {
				// Its template is not the job's.
				replica.ReplicaID = workload.ReplicaID{}
			}
			if missing := p.sizes.Missing(&replica, name); missing != "" {
				return missing
			}
		}
	}
	if excess := p.excessPods(slots); len(excess) > 0 {
		return fmt.Sprintf("pod %s still exists", excess[0].Name)
	}
	return ""
}
