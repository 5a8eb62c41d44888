// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package coordinatorled

import (
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
)

// A replica that fails repeatedly is replaced with an exponential backoff, as the
// kubelet restarts containers.
const (
	firstReplacementDelay = 10 * time.Second
	lastReplacementDelay  = 5 * time.Minute
)

// slot is a member with its recorded status and its pods.
type slot struct {
	member *v2alpha1.Member
	// recorded is its recorded status.
	recorded v2alpha1.SlotStatus
	// name is the name of its current pod; for a unit, of its aggregator.
	name string
	// pods are the names of all its pods, the one named first.
	pods []string
	// isShadowed is set if another slot has one of these names.
	isShadowed bool
}

// readSlots returns the job's slots; none, and false, while the list is missing. A list that exceeds the limits
// counts as missing, and is reported: di-server writes no such list, so nothing is created or deleted for it.
func readSlots(out *state.Plan, in *state.Input) ([]slot, bool) {
	list := in.Membership
	if list == nil || !list.DeletionTimestamp.IsZero() || list.Spec.JobUID != in.Job.UID {
		return nil, false
	}
	if excess := excessOfMembers(list.Spec.Members); excess != "" {
		out.Invalidate(excess)
		return nil, false
	}
	slots, recorded := make([]slot, len(list.Spec.Members)), recordedSlots(&list.Status)
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		status, isRecorded := recorded[member.Slot]
		if !isRecorded {
			status.Slot = member.Slot
		}
		pods := membership.PodNames(in.Job.Name, member, status.Losses)
		slots[i] = slot{member: member, recorded: status, name: pods[0], pods: pods}
	}
	findShadowed(in, slots)
	return slots, true
}

// findShadowed finds slots that share a pod's name with another slot. This can happen because the
// names of replacements contain a short hash. The slot that the pod was created for keeps the name,
// else the first slot of the list.
func findShadowed(in *state.Input, slots []slot) {
	owners := make(map[string]int, len(slots))
	for i := range slots {
		for _, name := range slots[i].pods {
			first, isOwned := owners[name]
			if pod := in.PodNamed[name]; isOwned && pod != nil && slotOf(pod) == slots[i].member.Slot {
				slots[first].isShadowed, isOwned = true, false
			}
			if isOwned {
				slots[i].isShadowed = true
				continue
			}
			owners[name] = i
		}
	}
}

// nextLost returns the next count of losses, after the recorded one, that gives the slot names that
// are free.
func (p *Plan) nextLost(s *slot, given map[string]bool) int32 {
	lost := s.recorded.Losses
	isGiven := func(name string) bool { return given[name] || p.in.PodNamed[name] != nil }
	for lost < limits.Losses {
		lost++
		if pods := membership.PodNames(p.in.Job.Name, s.member, lost); !slices.ContainsFunc(pods, isGiven) {
			for _, name := range pods {
				given[name] = true
			}
			break
		}
	}
	return lost
}

// excessOfMembers describes which counts exceed the limits of a Membership, "" for none. di-server
// stays within the limits. Names and ports depend on these counts.
func excessOfMembers(members []v2alpha1.Member) string {
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

// recordedSlots returns the recorded states of slots by name.
func recordedSlots(status *v2alpha1.MembershipStatus) map[string]v2alpha1.SlotStatus {
	recorded := make(map[string]v2alpha1.SlotStatus, len(status.Slots))
	for _, slot := range slices.Backward(status.Slots) {
		recorded[slot.Slot] = slot
	}
	return recorded
}

// missing reports whether a pod of the slot existed and is gone. Either the slot is recorded as
// complete, or its remaining objects show that it was. A service shows that, because it is created
// after its pod was observed.
func (p *Plan) missing(s *slot) bool {
	present, traced := 0, false
	for _, name := range s.pods {
		if p.in.PodNamed[name] != nil {
			present++
			continue
		}
		service := p.in.ServiceNamed[name]
		traced = traced || service != nil && service.DeletionTimestamp.IsZero()
	}
	if s.recorded.ObservedPod == s.name {
		return present < len(s.pods)
	}
	return traced || p.in.PodNamed[s.name] == nil && present > 0
}

// lost reports whether the slot's pod, or any pod of its unit, is lost, so that the
// slot needs new pods.
func (p *Plan) lost(s *slot) bool {
	if p.missing(s) {
		return p.in.Confirmed && !slices.ContainsFunc(s.pods, p.isStray)
	}
	for _, name := range s.pods {
		pod := p.in.PodNamed[name]
		if pod == nil {
			continue
		}
		if podstate.Terminating(pod) || pod.Status.Phase == corev1.PodFailed && p.mayReplace(pod, s.recorded.Losses) {
			return true
		}
	}
	return false
}

// isStray reports whether a pod of the name runs without an owner.
func (p *Plan) isStray(name string) bool {
	_, is := p.in.Strays[name]
	return is
}

// mayReplace reports whether the backoff of a failed pod is over. A disruption may affect the next
// pod as well, so it backs off, too, unless the pod ran for that long.
func (p *Plan) mayReplace(pod *corev1.Pod, lost int32) bool {
	if lost == 0 {
		return true
	}
	since, isDisrupted := podstate.FinishTime(pod), podstate.Disrupted(pod)
	if isDisrupted {
		since = pod.CreationTimestamp.Time
	}
	delay := min(firstReplacementDelay<<min(lost-1, 10), lastReplacementDelay)
	left := since.Add(delay).Sub(p.in.Now)
	if left <= 0 {
		return true
	}
	p.isBackingOff = p.isBackingOff || isDisrupted
	p.out.RequeueAfter(left)
	return false
}

// disruptedPods returns the pods of a slot that were disrupted.
func (p *Plan) disruptedPods(s *slot) []*corev1.Pod {
	var found []*corev1.Pod
	for _, name := range s.pods {
		if pod := p.in.PodNamed[name]; pod != nil && !podstate.Terminating(pod) && podstate.Disruption(pod) != "" {
			found = append(found, pod)
		}
	}
	return found
}

// recordMembers records the state of the replicas. It only counts a loss. The new name follows from
// that record in the next reconcile.
func (p *Plan) recordMembers() state.Result {
	if !p.isKnown {
		return state.Continue
	}
	var wanted v2alpha1.MembershipStatus
	var disrupted []*corev1.Pod
	given, ranks := p.wantedNames(p.slots), p.slotRanks(p.slots)
	for i := range p.slots {
		s := &p.slots[i]
		status := v2alpha1.SlotStatus{Slot: s.member.Slot, Rank: ranks[s.member.Slot], Losses: s.recorded.Losses, ObservedPod: s.recorded.ObservedPod, Ports: s.recorded.Ports}
		if pod := p.in.PodNamed[s.name]; pod != nil && !s.isShadowed {
			status.Phase = podstate.Phase(pod)
			port := names.DIPort(&pod.Spec, membership.Role(s.member))
			status.Ports = membership.RecordPort(s.recorded.Ports, limits.Sum(s.member.FailureReports, s.recorded.Losses), port)
		}
		switch {
		case s.isShadowed:
			// The slot never had a pod of this name, and gets the next name.
			status.Losses = p.nextLost(s, given)
		case p.lost(s):
			status.Losses = p.nextLost(s, given)
			p.reportLoss(s)
			disrupted = append(disrupted, p.disruptedPods(s)...)
		case p.complete(s):
			status.ObservedPod = s.name
		}
		wanted.Slots = append(wanted.Slots, status)
	}
	if len(disrupted) > 0 {
		disruptions.New(p.out, p.in).RecordDisruption(disrupted, "replacing it by a pod with a new name, later each time")
	}
	wanted.Members = int32(len(p.slots))
	for i := range wanted.Slots {
		wanted.Losses = limits.Sum(wanted.Losses, wanted.Slots[i].Losses)
	}
	if !equality.Semantic.DeepEqual(wanted, p.in.Membership.Status) {
		p.out.Decision.MembershipStatus = &wanted
	}
	return state.Continue
}

// reportLoss records an event for the lost pod of a slot.
func (p *Plan) reportLoss(s *slot) {
	for _, name := range s.pods {
		how := howLost(p.in.PodNamed[name])
		if how == "" {
			continue
		}
		message := fmt.Sprintf("pod %s %s", name, how)
		if len(s.pods) > 1 {
			message += fmt.Sprintf(", and its unit of aggregator %s is replaced whole", s.name)
		}
		p.out.Decision.Losses = append(p.out.Decision.Losses, state.Event{
			Type: corev1.EventTypeWarning, Reason: v2alpha1.ReasonReplicaLost, Pod: name,
			Message: message + "; replacing it by a pod with a new name",
		})
		return
	}
}

// howLost describes how a pod was lost, "" for one that was not.
func howLost(pod *corev1.Pod) string {
	switch {
	case pod == nil:
		return "is gone"
	case podstate.Terminating(pod):
		return "is being deleted"
	case pod.Status.Phase == corev1.PodFailed:
		return "has failed" + podstate.FailureCause(pod)
	}
	return ""
}

func (p *Plan) complete(s *slot) bool {
	for _, name := range s.pods {
		if p.in.PodNamed[name] == nil {
			return false
		}
	}
	return true
}

// ensureMembers creates the pods and services of the slots while there is a
// coordinator.
func (p *Plan) ensureMembers() state.Result {
	coordinator := p.coordinator()
	if !p.isKnown || coordinator == nil || podstate.Terminating(coordinator) || podstate.Finished(coordinator) {
		return state.Continue
	}
	var unconfigured []string
	ranks := p.slotRanks(p.slots)
	for i := range p.slots {
		s := &p.slots[i]
		if s.isShadowed || p.missing(s) || p.lost(s) {
			continue
		}
		if !membership.IsUnit(s.member) {
			if p.mayCreate(membership.Role(s.member), s.name) {
				pod, err := p.in.Builder.Replica(s.member, s.name)
				p.setRank(pod, ranks[s.member.Slot])
				p.createMember(p.leaveNode(s, pod), err)
			}
			continue
		}
		if p.in.PodNamed[s.name] == nil && p.in.AggregatorConfig == nil {
			unconfigured = append(unconfigured, p.describeUnconfigured(s.member.Slot))
			continue
		}
		p.ensureUnit(s, ranks[s.member.Slot])
	}
	p.out.ReportCondition(v2alpha1.ConditionAggregatorConfigMissing, v2alpha1.ConditionAggregatorConfigMissing, unconfigured)
	return state.Continue
}

// describeUnconfigured describes why the learner of a slot has no AggregatorConfig.
func (p *Plan) describeUnconfigured(slot string) string {
	if p.in.AggregatorConfigNotShared == "" {
		return fmt.Sprintf("learner of slot %s needs an AggregatorConfig, and there is none", slot)
	}
	return fmt.Sprintf("learner of slot %s needs an AggregatorConfig that is not shared: annotate %s with %s=%s, or name another",
		slot, p.in.AggregatorConfigNotShared, names.AnnotationSharedWith, p.in.Job.Namespace)
}

func (p *Plan) ensureUnit(s *slot, rank int32) {
	if p.mayCreate(names.ReplicaTypeAggregator, s.name) {
		pod, err := p.in.Builder.Aggregator(p.in.AggregatorConfig, s.member, s.name)
		p.setRank(pod, rank)
		p.createMember(p.leaveNode(s, pod), err)
	}
	aggregator := p.in.PodNamed[s.name]
	if aggregator == nil {
		return
	}
	for index, name := range s.pods[1:] {
		if p.mayCreate(names.ReplicaTypeDDPLearner, name) {
			p.createMember(p.in.Builder.DDPLearner(s.member, aggregator, s.pods[1:], index))
		}
	}
}

// mayCreate reports whether a pod is created now. If the pod exists, it creates its service instead. No client can
// reach a pod before it has its service. So no name that was reached is used twice, even if the operator exits
// before it has recorded the pod.
func (p *Plan) mayCreate(role names.ReplicaType, name string) bool {
	if pod := p.in.PodNamed[name]; pod != nil {
		p.ensureReplicaService(pod)
		return false
	}
	return !p.out.IsPodTaken(name) && p.out.MayCreate(string(role))
}

// slotOf returns the slot of a pod, "" for the coordinator and for pods that the operator has not
// created.
func slotOf(pod *corev1.Pod) string {
	return pod.Annotations[names.AnnotationSlot]
}
