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
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/losses"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
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
	groups    *groups.Plan
	handshake *handshake.Handshake
	// removals are the pods that the rules before want to release.
	removals handshake.Removals
	creating creation.Rules
	// joining counts the pods that are created in each of Kueue's groups.
	joining map[int32]int
}

// New returns the rules of the pods of members.
func New(out *state.Plan, job *observed.Facts, found losses.Losses, queue *groups.Plan, shake *handshake.Handshake, removals handshake.Removals) *Stage {
	return &Stage{
		out: out, in: job.In, facts: job, losses: found, groups: queue, handshake: shake, removals: removals,
		creating: creation.New(out, job.In), joining: map[int32]int{},
	}
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
		case slot.IsShadowed || slot.IsMissing(s.in) || s.losses.Slots[i] || !s.groups.IsRecorded(i):
			// The write of a record triggers the next reconcile.
		case !membership.IsUnit(slot.Member):
			s.ensureReplica(i)
		case s.in.PodNamed[slot.Pod] == nil && s.in.AggregatorConfig == nil:
			unconfigured = append(unconfigured, s.describeUnconfigured(slot.Member.Slot))
		default:
			s.ensureUnit(i)
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

func (s *Stage) ensureReplica(at int) {
	if slot := &s.facts.Slots[at]; s.creating.May(membership.Role(slot.Member), slot.Pod) {
		s.createFirst(at, s.in.Builder.Replica)
	}
}

func (s *Stage) ensureUnit(at int) {
	slot := &s.facts.Slots[at]
	if s.creating.May(names.ReplicaTypeAggregator, slot.Pod) {
		s.createFirst(at, func(member *v2alpha1.Member, name string) (*corev1.Pod, error) {
			return s.in.Builder.Aggregator(s.in.AggregatorConfig, member, name)
		})
	}
	aggregator := s.in.PodNamed[slot.Pod]
	if aggregator == nil {
		return
	}
	for index, name := range slot.Pods[1:] {
		if s.creating.May(names.ReplicaTypeDDPLearner, name) {
			pod, err := s.in.Builder.DDPLearner(slot.Member, aggregator, slot.Pods[1:], index)
			s.create(at, pod, err)
		}
	}
}

// createFirst creates the pod of a slot that has its rank. It avoids the node of a pod that a plan replaces by it.
func (s *Stage) createFirst(at int, build func(*v2alpha1.Member, string) (*corev1.Pod, error)) {
	slot := &s.facts.Slots[at]
	pod, err := build(slot.Member, slot.Pod)
	s.creating.SetRank(pod, s.facts.Ranks[slot.Member.Slot])
	if pod != nil && slot.Recorded.Losses > 0 {
		s.in.Builder.LeaveNode(pod, membership.PodName(s.in.Job.Name, slot.Member, slot.Recorded.Losses-1))
	}
	s.create(at, pod, err)
}

// create creates a pod of a slot once its group has a place for it. The end of the pod that has the place triggers the
// next reconcile.
func (s *Stage) create(at int, pod *corev1.Pod, err error) {
	number := s.groups.Slots[at].Group
	meta, hasPlace := s.groups.Meta(at, s.joining[number])
	if err != nil || hasPlace {
		s.creating.Create(pod, err, meta)
		s.joining[number]++
	}
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
			incomplete[slot.Member.Task] = s.facts.Drains(slot.Member.Task)
		}
	}
	joining := map[string]bool{names.CoordinatorPod(s.in.Job.Name): true}
	for i := range s.facts.Slots {
		joining[s.facts.Slots[i].Pod] = !incomplete[s.facts.Slots[i].Member.Task]
	}
	s.handshake.Publish(s.removals, joining)
	return state.Continue
}
