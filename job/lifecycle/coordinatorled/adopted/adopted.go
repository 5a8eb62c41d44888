// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adopted adopts the objects that an earlier release created for a coordinator-led job, and puts back what others
// changed of its pods.
package adopted

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/lifecycle/endings"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
)

// Stage decides whose the existing objects are.
type Stage struct {
	out   *state.Plan
	in    *state.Input
	facts *observed.Facts
	queue *groups.Plan
}

// New returns the rules of the objects that exist.
func New(out *state.Plan, job *observed.Facts, queue *groups.Plan) *Stage {
	return &Stage{out: out, in: job.In, facts: job, queue: queue}
}

// Rules are the rules of the objects that exist, in order.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "pods that only Kueue keeps are released", Apply: s.release},
		{Name: "a deleted job that is held has no pods", Apply: endings.New(s.out, s.in).Terminate},
		{Name: "objects of an earlier release are adopted", Apply: s.adopt},
		{Name: "what others changed of pods is put back", Apply: s.out.RestorePods},
	}
}

func (s *Stage) release() state.Result {
	s.out.Decision.ReleasePods = append(s.out.Decision.ReleasePods, s.queue.Held()...)
	return state.Continue
}

// adopt adopts the objects that an earlier release created for a job. While there are any, nothing
// else is decided. Owner references must name the stored version, because the garbage collector
// resolves no version that is not served. The replicas of a running job must name their slots,
// because its Membership is built from them.
func (s *Stage) adopt() state.Result {
	named := s.slotsToName()
	for _, pod := range s.in.Pods {
		if named[pod.Name] == "" && !s.in.IsEarlier(pod) {
			continue
		}
		wanted := pod.DeepCopy()
		wanted.OwnerReferences = s.in.StoredReferences(pod)
		if slot := named[pod.Name]; slot != "" {
			metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationSlot, slot)
		}
		s.out.Decision.AdoptPods = append(s.out.Decision.AdoptPods, wanted)
	}
	for _, service := range s.in.Services {
		if s.in.IsEarlier(service) {
			wanted := service.DeepCopy()
			wanted.OwnerReferences = s.in.StoredReferences(service)
			s.out.Decision.AdoptServices = append(s.out.Decision.AdoptServices, wanted)
		}
	}
	return s.out.SettleAdoption()
}

// slotsToName returns the slots that pods do not name yet, by pod. Once there is a
// Membership, a pod without a slot is foreign.
func (s *Stage) slotsToName() map[string]string {
	if s.in.Membership != nil || state.IsSuspended(s.in.Job) || state.IsFinished(&s.in.Job.Status) {
		return nil
	}
	remains, named := s.facts.Remains(), map[string]string{}
	for _, pod := range s.in.Pods {
		if slots.Of(pod) == "" {
			named[pod.Name] = s.slotToName(remains, pod)
		}
	}
	return named
}

// slotToName returns the slot of a pod that names none: the slot of its own name or of its
// aggregator; "" if the pod is no member.
func (s *Stage) slotToName(remains membership.Remains, pod *corev1.Pod) string {
	if names.RoleOf(pod) == names.ReplicaTypeDDPLearner {
		if pod = s.aggregatorOf(pod); pod == nil {
			return ""
		}
	}
	switch {
	case slots.Of(pod) != "":
		return slots.Of(pod)
	case remains.Stands(pod):
		return slotOfName(s.in.Job.Name, pod)
	}
	return ""
}

// aggregatorOf returns the aggregator that owns a DDP learner; nil if it is gone.
func (s *Stage) aggregatorOf(learner *corev1.Pod) *corev1.Pod {
	for _, reference := range learner.OwnerReferences {
		pod := s.in.PodNamed[reference.Name]
		if pod != nil && pod.UID == reference.UID && names.RoleOf(pod) == names.ReplicaTypeAggregator {
			return pod
		}
	}
	return nil
}

// slotOfName returns the slot of the replica with the pod's name; "" if its role has no such names.
func slotOfName(job string, pod *corev1.Pod) string {
	prefix := names.ReplicaPod(job, names.RoleOf(pod), "")
	if !strings.HasPrefix(pod.Name, prefix) || !membership.IsReplicaName(job, pod.Name) {
		return ""
	}
	return strings.TrimPrefix(pod.Name, job+"-")
}
