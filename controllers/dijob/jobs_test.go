// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

func podTemplate() v2alpha1.RawObject {
	return jobs.Raw(`{"metadata":{"labels":{"team":"blue"}},"spec":{"containers":[{"name":"di-container","image":"image"}]}}`)
}

// newWorkers returns a space with the job of submitWorkers.
func newWorkers(ctx context.Context, backoffLimit int32) *space {
	s := newSpace(ctx)
	s.submitWorkers(ctx, backoffLimit)
	return s
}

// newLed returns a space with the job of submitLed.
func newLed(ctx context.Context, policy v2alpha1.CleanPodPolicy) *space {
	s := newSpace(ctx)
	s.submitLed(ctx, policy)
	return s
}

// submitWorkers submits a worker-led job of a learner and two collectors.
func (s *space) submitWorkers(ctx context.Context, backoffLimit int32) {
	s.submit(ctx, v2alpha1.DIJobSpec{
		BackoffLimit: &backoffLimit,
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: podTemplate()},
			{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: podTemplate()},
		},
	})
}

// submitLed submits a coordinator-led job and its AggregatorConfig.
func (s *space) submitLed(ctx context.Context, policy v2alpha1.CleanPodPolicy) {
	Expect(shared.api.Create(ctx, &v2alpha1.AggregatorConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "aggregator-config"},
		Spec:       v2alpha1.AggregatorConfigSpec{Aggregator: v2alpha1.AggregatorSpec{Template: podTemplate()}},
	})).To(Succeed())
	s.submit(ctx, v2alpha1.DIJobSpec{
		Lifecycle:      v2alpha1.LifecycleCoordinatorLed,
		CleanPodPolicy: policy,
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeCoordinator, Template: podTemplate()},
			{Type: v2alpha1.TaskTypeCollector, Template: podTemplate(), Replicas: ptr.To(int32(0))},
			{Type: v2alpha1.TaskTypeLearner, Template: podTemplate(), Replicas: ptr.To(int32(0))},
		},
	})
}

func (s *space) submit(ctx context.Context, spec v2alpha1.DIJobSpec) {
	Expect(shared.api.Create(ctx, &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job"}, Spec: spec,
	})).To(Succeed())
}

func (s *space) membership(ctx context.Context) *v2alpha1.Membership {
	list := &v2alpha1.Membership{}
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, list)).To(Succeed())
	return list
}

// askForReplicas requests two collectors and a learner of two GPUs, as di-server does.
func (s *space) askForReplicas(ctx context.Context) {
	list := s.membership(ctx)
	for _, member := range []v2alpha1.Member{
		{Slot: "a", Task: v2alpha1.TaskTypeCollector},
		{Slot: "b", Task: v2alpha1.TaskTypeCollector},
		{Slot: "c", Task: v2alpha1.TaskTypeLearner, DDPGPUs: []int32{2}},
	} {
		member.PodName = names.ReplicaPod("job", membership.Role(&member), names.Suffix(member.Slot))
		list.Spec.Members = append(list.Spec.Members, member)
	}
	Expect(shared.api.Update(ctx, list)).To(Succeed())
}

// replicaPods returns the names of the pods that the list currently desires.
func (s *space) replicaPods(ctx context.Context) []string {
	list := s.membership(ctx)
	var wanted []string
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		name := membership.PodName("job", member, membership.Losses(&list.Status, member.Slot))
		wanted = append(append(wanted, name), membership.DDPPodNames("job", member, name)...)
	}
	return wanted
}
