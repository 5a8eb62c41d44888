// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

var _ = Describe("The allocator", func() {
	It("places preemptible jobs, moves them when a node is gone, and says why it cannot", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManager(ctx)
		first, second := s.newNode(ctx, "first", 4), s.newNode(ctx, "second", 8)

		By("placing a job on the node that holds it")
		s.submit(ctx, v2alpha1.DIJobSpec{
			Preemptible: true,
			Elastic:     &v2alpha1.Elastic{MinReplicas: ptr.To(int32(1)), MaxReplicas: ptr.To(int32(3))},
			Tasks: []v2alpha1.Task{
				{Type: v2alpha1.TaskTypeLearner, Template: s.demandingTemplate()},
				{Type: v2alpha1.TaskTypeCollector, Template: s.demandingTemplate()},
			},
		})
		Eventually(s.placed).WithContext(ctx).WithTimeout(patience).Should(Equal(fmt.Sprintf("True Placed %[1]s %[1]s %[1]s %[1]s", second.Name)))
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(4))
		for _, pod := range s.pods(ctx) {
			field := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0]
			Expect(field.Key + "=" + field.Values[0]).To(Equal("metadata.name=" + second.Name))
		}
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))

		By("deleting that node")
		Expect(shared.api.Delete(ctx, second)).To(Succeed())
		Eventually(s.placed).WithContext(ctx).WithTimeout(patience).Should(Equal(fmt.Sprintf("True PartiallyPlaced %[1]s %[1]s", first.Name)))
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(s.podNames(ctx)).To(ConsistOf("job-learner-0", "job-collector-0"))
			g.Expect(s.job(ctx).Status.Reschedules).To(BeEquivalentTo(1))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))

		By("deleting the last node")
		Expect(shared.api.Delete(ctx, first)).To(Succeed())
		Eventually(s.placed).WithContext(ctx).WithTimeout(patience).Should(Equal("False InsufficientCapacity"))
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(BeEmpty())
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobPending))
		Eventually(s.reasons).WithContext(ctx).WithTimeout(patience).Should(ContainElements("Placed", "PartiallyPlaced", "InsufficientCapacity", "JobRescheduling"))

		By("adding one")
		third := s.newNode(ctx, "third", 16)
		Eventually(s.placed).WithContext(ctx).WithTimeout(patience).Should(Equal(fmt.Sprintf("True Placed %[1]s %[1]s %[1]s %[1]s", third.Name)))
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(4))
	})

	It("places what the quota of a namespace admits, and another tenant gets the rest", func(ctx SpecContext) {
		s := newSpace(ctx)
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "team"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("4")}},
		}
		Expect(shared.api.Create(ctx, quota)).To(Succeed())
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("0")}}
		Expect(shared.api.Status().Update(ctx, quota)).To(Succeed())
		s.startManager(ctx)
		node := s.newNode(ctx, "node", 16)
		s.submit(ctx, v2alpha1.DIJobSpec{
			Preemptible: true,
			Elastic:     &v2alpha1.Elastic{MinReplicas: ptr.To(int32(1)), MaxReplicas: ptr.To(int32(8))},
			Tasks:       []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Template: s.demandingTemplate()}},
		})
		Eventually(s.placed).WithContext(ctx).WithTimeout(patience).Should(Equal(fmt.Sprintf("True PartiallyPlaced %[1]s %[1]s", node.Name)))
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(2))
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionAllocated, corev1.ConditionTrue, "PartiallyPlaced", ContainSubstring("quota team leaves 4 of requests.cpu to it")))

		other := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: s.name}, Spec: v2alpha1.DIJobSpec{
			Preemptible: true, Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(6)), Template: s.demandingTemplate()}},
		}}
		Expect(shared.api.Create(ctx, other)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(shared.api.Delete(ctx, other)).To(Succeed()) })
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
			g.Expect(other.Status.Allocation).To(HaveLen(6))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	})
})

// placed reports whether and where the space's job is placed, with the reason.
func (s *space) placed(ctx context.Context) string {
	return placement(s.job(ctx))
}

// newNode creates a ready node for the space with the given number of CPUs.
func (s *space) newNode(ctx context.Context, name string, cpus int64) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + name, Labels: map[string]string{"space": s.name}}}
	Expect(shared.api.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(shared.api.Delete(ctx, node))).To(Succeed())
	})
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:  *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	Expect(shared.api.Status().Update(ctx, node)).To(Succeed())
	// The API server taints a new node as not ready. No controller removes the taint in these tests.
	return node
}

// demandingTemplate returns a pod that requests two CPUs of a node of the space.
func (s *space) demandingTemplate() v2alpha1.RawObject {
	template := podTemplate()
	template.Raw = []byte(`{"spec":{"nodeSelector":{"space":"` + s.name + `"},` +
		`"containers":[{"name":"di-container","image":"image","resources":{"requests":{"cpu":"2"}}}]}}`)
	return template
}
