// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staffing creates the pods of the members of a coordinator-led job, and publishes which of them are members.
package staffing

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/creation"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/losses"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Stage decides which pods of members are created.
type Stage struct {
	out       *state.Plan
	in        *state.Input
	facts     *observed.Facts
	losses    losses.Losses
	handshake *handshake.Handshake
	// removals are the pods that the rules before want to release.
	removals handshake.Removals
	creating creation.Rules
}

// New returns the rules of the pods of members.
func New(out *state.Plan, job *observed.Facts, found losses.Losses, shake *handshake.Handshake, removals handshake.Removals) *Stage {
	return &Stage{out: out, in: job.In, facts: job, losses: found, handshake: shake, removals: removals, creating: creation.New(out, job.In)}
}

// Rules are the rules of the pods of members, in order.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "every slot gets its pods", Apply: s.ensureMembers},
		{Name: "the membership is published", Apply: s.publishMembership},
	}
}

// ensureMembers creates the pods and services of the slots while there is a
// coordinator.
func (s *Stage) ensureMembers() state.Result {
	coordinator := s.facts.Coordinator
	if !s.facts.IsKnown || coordinator == nil || podstate.Terminating(coordinator) || podstate.Finished(coordinator) {
		return state.Continue
	}
	var unconfigured []string
	for i := range s.facts.Slots {
		slot := &s.facts.Slots[i]
		switch {
		case slot.IsShadowed || slot.IsMissing(s.in) || s.losses.Slots[i]:
		case !membership.IsUnit(slot.Member):
			s.ensureReplica(slot)
		case s.in.PodNamed[slot.Pod] == nil && s.in.AggregatorConfig == nil:
			unconfigured = append(unconfigured, s.describeUnconfigured(slot.Member.Slot))
		default:
			s.ensureUnit(slot)
		}
	}
	s.out.ReportCondition(v2alpha1.ConditionAggregatorConfigMissing, v2alpha1.ConditionAggregatorConfigMissing, unconfigured)
	return state.Continue
}

// describeUnconfigured describes why the learner of a slot has no AggregatorConfig.
func (s *Stage) describeUnconfigured(slot string) string {
	if s.in.AggregatorConfigNotShared == "" {
		return fmt.Sprintf("learner of slot %s needs an AggregatorConfig, and there is none", slot)
	}
	return fmt.Sprintf("learner of slot %s needs an AggregatorConfig that is not shared: annotate %s with %s=%s, or name another",
		slot, s.in.AggregatorConfigNotShared, names.AnnotationSharedWith, s.in.Job.Namespace)
}

func (s *Stage) ensureReplica(slot *slots.Slot) {
	if s.creating.May(membership.Role(slot.Member), slot.Pod) {
		s.createFirst(slot, s.in.Builder.Replica)
	}
}

func (s *Stage) ensureUnit(slot *slots.Slot) {
	if s.creating.May(names.ReplicaTypeAggregator, slot.Pod) {
		s.createFirst(slot, func(member *v2alpha1.Member, name string) (*corev1.Pod, error) {
			return s.in.Builder.Aggregator(s.in.AggregatorConfig, member, name)
		})
	}
	aggregator := s.in.PodNamed[slot.Pod]
	if aggregator == nil {
		return
	}
	for index, name := range slot.Pods[1:] {
		if s.creating.May(names.ReplicaTypeDDPLearner, name) {
			s.creating.Create(s.in.Builder.DDPLearner(slot.Member, aggregator, slot.Pods[1:], index))
		}
	}
}

// createFirst creates the pod of a slot that has its rank. It avoids the node of a pod that a plan replaces by it.
func (s *Stage) createFirst(slot *slots.Slot, build func(*v2alpha1.Member, string) (*corev1.Pod, error)) {
	pod, err := build(slot.Member, slot.Pod)
	s.creating.SetRank(pod, s.facts.Ranks[slot.Member.Slot])
	if pod != nil && slot.Recorded.Losses > 0 {
		s.in.Builder.LeaveNode(pod, membership.PodName(s.in.Job.Name, slot.Member, slot.Recorded.Losses-1))
	}
	s.creating.Create(pod, err)
}

// publishMembership records the next version of the membership. Replicas that hold state join together.
func (s *Stage) publishMembership() state.Result {
	if !handshake.HasStateful(s.in.Job) {
		s.handshake.Publish(s.removals, nil)
		return state.Continue
	}
	if !s.facts.IsKnown {
		return state.Continue
	}
	if s.out.Status().Scaling == nil {
		s.out.RecordScaling(&v2alpha1.ScalingStatus{})
	}
	incomplete := map[v2alpha1.TaskType]bool{}
	for i := range s.facts.Slots {
		slot := &s.facts.Slots[i]
		if pod := s.in.PodNamed[slot.Pod]; pod == nil || !podstate.Ready(pod) && !s.handshake.IsListed(pod) {
			incomplete[slot.Member.Task] = s.drains(slot.Member.Task)
		}
	}
	joining := map[string]bool{names.CoordinatorPod(s.in.Job.Name): true}
	for i := range s.facts.Slots {
		joining[s.facts.Slots[i].Pod] = !incomplete[s.facts.Slots[i].Member.Task]
	}
	s.handshake.Publish(s.removals, joining)
	return state.Continue
}

// drains reports whether the replicas of a task hold state.
func (s *Stage) drains(kind v2alpha1.TaskType) bool {
	for i := range s.in.Job.Spec.Tasks {
		if s.in.Job.Spec.Tasks[i].Type == kind {
			return s.in.Job.Spec.Tasks[i].Drain != nil
		}
	}
	return false
}
