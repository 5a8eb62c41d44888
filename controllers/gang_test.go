// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

var _ = Describe("A gang", func() {
	It("is left to Kubernetes by an API server that serves its PodGroups", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManagerWith(ctx, shared.config, s.name)
		s.submitGang(ctx, v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}})

		By("telling of three pods before they are created")
		Eventually(s.podNames).WithContext(ctx).Should(HaveLen(3))
		group := s.group(ctx, ownGroups)
		Expect(nested(group, "spec", "schedulingPolicy", "gang", "minCount")).To(BeEquivalentTo(3))
		Expect(metav1.IsControlledBy(group, s.job(ctx))).To(BeTrue())
		for _, pod := range s.pods(ctx) {
			Expect(pod.Spec.SchedulingGroup).To(HaveValue(Equal(corev1.PodSchedulingGroup{PodGroupName: ptr.To(group.GetName())})))
			Expect(pod.Spec.SchedulerName).To(Equal("default-scheduler"))
		}

		By("saying in the scheduler's words why it waits")
		s.unschedulable(ctx, "0/2 nodes are available: 2 Insufficient cpu. preemption: none")
		s.tellGroup(ctx, group, map[string]any{"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "pod group is unschedulable"})
		Eventually(s.gangState).WithContext(ctx).Should(Equal("False Unschedulable: no node is available: Insufficient cpu"))
		Eventually(s.reasons).WithContext(ctx).Should(ContainElement("GangUnschedulable"))

		By("saying that all have a node")
		s.bind(ctx)
		Eventually(s.gangState).WithContext(ctx).Should(HavePrefix("True GangPlaced: "))

		By("deleting the object with the end of the job")
		s.run(ctx)
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
		Eventually(s.phase).WithContext(ctx).Should(Equal(v2alpha1.JobSucceeded))
		s.letGroupGo(ctx, group)
		Expect(s.gangState(ctx)).To(HavePrefix("True GangPlaced: "))
	})
})

// ownGroups are Kubernetes' own PodGroups, in the version of the API server of the tests.
var ownGroups = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1alpha2", Kind: "PodGroup"}

// submitGang submits a worker-led job of a learner and two collectors.
func (s *space) submitGang(ctx context.Context, scheduling v2alpha1.Scheduling) {
	s.submit(ctx, v2alpha1.DIJobSpec{
		BackoffLimit: ptr.To(int32(1)), Scheduling: &scheduling,
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: podTemplate()},
			{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: podTemplate()},
		},
	})
}

func (s *space) group(ctx context.Context, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	GinkgoHelper()
	group := newGroup(gvk)
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "di-job"}, group)).To(Succeed())
	return group
}

func nested(object *unstructured.Unstructured, path ...string) any {
	GinkgoHelper()
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	Expect(err).NotTo(HaveOccurred())
	return value
}

// unschedulable has a scheduler say in all pods why it finds no node.
func (s *space) unschedulable(ctx context.Context, message string) {
	GinkgoHelper()
	for _, pod := range s.pods(ctx) {
		unschedulable(message)(&pod)
		Expect(shared.api.Status().Update(ctx, &pod)).To(Succeed())
	}
}

// tellGroup has a scheduler set a condition of a PodGroup.
func (s *space) tellGroup(ctx context.Context, group *unstructured.Unstructured, condition map[string]any) {
	GinkgoHelper()
	told := group.DeepCopy()
	condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
	Expect(unstructured.SetNestedSlice(told.Object, []any{condition}, "status", "conditions")).To(Succeed())
	Expect(shared.api.Status().Patch(ctx, told, client.MergeFrom(group))).To(Succeed())
}

// bind gives each pod a node, as schedulers do.
func (s *space) bind(ctx context.Context) {
	GinkgoHelper()
	for _, pod := range s.pods(ctx) {
		if pod.Spec.NodeName == "" {
			binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
			Expect(shared.api.SubResource("binding").Create(ctx, &pod, binding)).To(Succeed())
		}
	}
}

// gangState is the job's condition GangScheduled, "" for none.
func (s *space) gangState(ctx context.Context) string {
	for _, condition := range s.job(ctx).Status.Conditions {
		if condition.Type == v2alpha1.ConditionGangScheduled {
			return string(condition.Status) + " " + condition.Reason + ": " + condition.Message
		}
	}
	return ""
}

// letGroupGo waits until a PodGroup is deleted, and lets it go, as the controller
// that protects it does.
func (s *space) letGroupGo(ctx context.Context, group *unstructured.Unstructured) {
	GinkgoHelper()
	key := client.ObjectKeyFromObject(group)
	Eventually(func(g Gomega) {
		g.Expect(shared.api.Get(ctx, key, group)).To(Succeed())
		g.Expect(group.GetDeletionTimestamp()).NotTo(BeNil())
		group.SetFinalizers(nil)
		g.Expect(shared.api.Update(ctx, group)).To(Succeed())
	}).Should(Succeed())
}
