// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package coordinatorled

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// replicas returns the pods whose resources the job decides, with their replicas: the coordinator, plain
// members and DDP learners. The template of an aggregator is not the job's. A nil map wants all pods.
func (p *Plan) replicas(wanted map[string]bool) iter.Seq[rightsize.Replica] {
	members := make(map[string]workload.ReplicaID, len(p.slots))
	for i := range p.slots {
		members[p.slots[i].member.Slot] = workload.MemberID(p.in.Job, p.slots[i].member)
	}
	coordinator := p.coordinator()
	return func(yield func(rightsize.Replica) bool) {
		for _, pod := range p.in.Pods {
			id, isKnown := members[slotOf(pod)]
			if pod == coordinator {
				id, isKnown = workload.CoordinatorID(p.in.Job), true
			}
			isTheirs := isKnown && names.RoleOf(pod) != names.ReplicaTypeAggregator && (wanted == nil || wanted[pod.Name])
			if isTheirs && !yield(rightsize.Replica{ReplicaID: id, Pod: pod}) {
				return
			}
		}
	}
}

// wantedReplicas returns the replicas of pods that are not excess.
func (p *Plan) wantedReplicas() iter.Seq[rightsize.Replica] {
	return p.replicas(p.wantedNames(p.slots))
}

// forgetResources removes the recorded resources of members that the job no longer has.
func (p *Plan) forgetResources() state.Result {
	if !p.isKnown || !slices.ContainsFunc(p.out.Scaling().Resources, func(override v2alpha1.ResourceOverride) bool { return override.Slot != "" }) {
		return state.Continue
	}
	isMember := make(map[string]bool, len(p.slots))
	for i := range p.slots {
		isMember[p.slots[i].member.Slot] = true
	}
	p.sizes.Forget(isMember)
	return state.Continue
}

// growMemory records more memory for replicas that were out of memory. Their next pods have it: that of
// the coordinator under its name, those of a member under new names. A coordinator that reports a failure
// may make the pod that was out of memory excess before the operator observes how it ended.
func (p *Plan) growMemory() state.Result {
	if autoscale := p.in.Job.Spec.Autoscale; autoscale == nil || autoscale.Memory == nil || state.IsFinished(&p.in.Job.Status) || state.IsSuspended(p.in.Job) {
		return state.Continue
	}
	var texts []string
	for replica := range p.replicas(nil) {
		pod := replica.Pod
		if !rightsize.WasOutOfMemory(pod) || podstate.Terminating(pod) || rightsize.IsResizing(pod) || p.sizes.HasGrown(&replica) {
			continue
		}
		text, refusal := p.sizes.Grow(&replica)
		switch {
		case refusal == "":
			texts = append(texts, text)
		case pod == p.coordinator():
			// The job ends with it. A member is replaced as after any other failure.
			p.out.Event(corev1.EventTypeWarning, v2alpha1.OverrideOutOfMemory, refusal)
		}
	}
	if len(texts) == 0 {
		return state.Continue
	}
	p.sizes.ReportAdjusted(v2alpha1.OverrideOutOfMemory, texts)
	return state.Settled
}

// hasGrown reports whether the coordinator was out of memory, and its next pod has more.
func (p *Plan) hasGrown(coordinator *corev1.Pod) bool {
	return rightsize.WasOutOfMemory(coordinator) && p.sizes.HasGrown(&rightsize.Replica{ReplicaID: workload.CoordinatorID(p.in.Job), Pod: coordinator})
}

// shrinkPending records fewer resources for replicas that the scheduler has found no node for.
func (p *Plan) shrinkPending() state.Result {
	if p.in.Job.Spec.Autoscale != nil && p.in.Job.Spec.Autoscale.Pending != nil {
		p.sizes.ShrinkPending(p.wantedReplicas())
	}
	return state.Continue
}

// applyResources gives the pods their recorded resources.
func (p *Plan) applyResources() state.Result {
	if len(p.out.Scaling().Resources) > 0 {
		p.sizes.Apply(p.wantedReplicas(), replacement{p})
	}
	return state.Continue
}

// replacement decides which replicas may be replaced for other resources.
type replacement struct{ of *Plan }

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
	slots := r.of.slots
	for i := range slots {
		isOther := workload.MemberID(r.of.in.Job, slots[i].member).Task == replica.Task && slots[i].member.Slot != replica.Slot
		isUnready := func(name string) bool {
			pod := r.of.in.PodNamed[name]
			return pod == nil || r.of.out.Deleting[pod] || !podstate.Ready(pod)
		}
		if isOther && slices.ContainsFunc(slots[i].pods, isUnready) {
			return false
		}
	}
	return true
}
