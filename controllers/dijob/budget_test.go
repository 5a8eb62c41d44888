// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle"
)

var _ = Describe("The budget of a job", func() {
	// least returns minAvailable of the job's budget, -1 if it has none.
	least := func(ctx context.Context, s *space) int {
		budget := &policyv1.PodDisruptionBudget{}
		err := shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, budget)
		if client.IgnoreNotFound(err) == nil && err != nil || budget.DeletionTimestamp != nil {
			return -1
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(budget.Spec.MaxUnavailable).To(BeNil())
		Expect(budget.Spec.MinAvailable.Type).To(Equal(intstr.Int))
		return budget.Spec.MinAvailable.IntValue()
	}
	change := func(ctx context.Context, s *space, edit func(*v2alpha1.DIJobSpec)) {
		GinkgoHelper()
		Eventually(func() error {
			job := s.job(ctx)
			edit(&job.Spec)
			return shared.api.Update(ctx, job)
		}).WithContext(ctx).Should(Succeed())
	}
	suspend := func(on bool) func(*v2alpha1.DIJobSpec) {
		return func(spec *v2alpha1.DIJobSpec) { spec.Suspend = ptr.To(on) }
	}
	// vandalize changes the budget as another program may, and expects it back.
	vandalize := func(ctx context.Context, s *space, want int) {
		GinkgoHelper()
		budget := &policyv1.PodDisruptionBudget{}
		for _, patch := range []string{
			`{"spec":{"minAvailable":0}}`, `{"spec":{"minAvailable":null,"maxUnavailable":"100%"}}`, `{"spec":{"selector":null}}`, `{"metadata":{"labels":null}}`,
		} {
			budget.Namespace, budget.Name = s.name, "job"
			Expect(shared.api.Patch(ctx, budget, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
				g.Expect(budget.Spec.MinAvailable).To(HaveValue(Equal(intstr.FromInt(want))), patch)
				g.Expect(budget.Spec.MaxUnavailable).To(BeNil(), patch)
				g.Expect(budget.Spec.Selector).To(HaveValue(HaveField("MatchLabels", Not(BeEmpty()))), patch)
				g.Expect(budget.Labels).NotTo(BeEmpty(), patch)
			}).WithContext(ctx).Should(Succeed())
		}
		before := budget.UID
		Expect(shared.api.Delete(ctx, budget)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
			g.Expect(budget.UID).NotTo(Equal(before))
			g.Expect(budget.Spec.MinAvailable).To(HaveValue(Equal(intstr.FromInt(want))))
		}).WithContext(ctx).Should(Succeed())
		Expect(metav1.IsControlledBy(budget, s.job(ctx))).To(BeTrue())
	}

	It("follows a worker-led job, and undoes what others change", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManagerWith(ctx, shared.account, s.name)
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) {
			spec.Disruption = &v2alpha1.Disruption{MaxUnavailable: ptr.To(intstr.FromString("25%"))}
		})
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(2))
		Eventually(s.podNames).WithContext(ctx).Should(HaveLen(3))
		s.run(ctx)
		vandalize(ctx, s, 2)

		By("following a resize, and a ScalePlan")
		change(ctx, s, func(spec *v2alpha1.DIJobSpec) {
			spec.Tasks[1].Replicas, spec.Elastic = ptr.To(int32(5)), &v2alpha1.Elastic{Task: "collector"}
		})
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(4))
		Eventually(s.podNames).WithContext(ctx).Should(HaveLen(6))
		s.run(ctx)
		s.submitPlan(ctx, "fewer", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(2))}}})
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(2))

		By("being 0 while the job is suspended")
		change(ctx, s, suspend(true))
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(0))
		change(ctx, s, suspend(false))
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(2))

		By("leaving and coming with the field")
		change(ctx, s, func(spec *v2alpha1.DIJobSpec) { spec.Disruption = nil })
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(-1))
		change(ctx, s, func(spec *v2alpha1.DIJobSpec) {
			spec.Disruption = &v2alpha1.Disruption{MinAvailable: ptr.To(intstr.FromInt32(3))}
		})
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(3))

		By("leaving with the end of the job")
		Eventually(s.podNames).WithContext(ctx).Should(HaveLen(3))
		s.run(ctx)
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
		Eventually(s.phase).WithContext(ctx).Should(Equal(v2alpha1.JobSucceeded))
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(-1))
	})

	It("follows the Membership of a coordinator-led job", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManagerWith(ctx, shared.account, s.name)
		s.submitLed(ctx, "")
		change(ctx, s, func(spec *v2alpha1.DIJobSpec) {
			spec.Disruption = &v2alpha1.Disruption{MaxUnavailable: ptr.To(intstr.FromInt32(0))}
		})
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(1))
		Eventually(s.podNames).WithContext(ctx).Should(ConsistOf("job-coordinator"))
		s.run(ctx)

		By("counting a coordinator, two collectors, and a unit of an aggregator and a DDP learner")
		s.askForReplicas(ctx)
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(5))
		Eventually(s.podNames).WithContext(ctx).Should(HaveLen(5))
		s.run(ctx)
		vandalize(ctx, s, 5)

		By("being 0 while the job is suspended")
		change(ctx, s, suspend(true))
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(0))
		Eventually(func(g Gomega) { g.Expect(s.podNames(ctx)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		change(ctx, s, suspend(false))
		Eventually(least).WithContext(ctx).WithArguments(s).Should(Equal(1))
	})

	It("does not replace that of another owner, and says so", func(ctx SpecContext) {
		s := newSpace(ctx)
		foreign := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(7))},
		}
		Expect(shared.api.Create(ctx, foreign)).To(Succeed())
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) {
			spec.Disruption = &v2alpha1.Disruption{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
		})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(3), "the job runs without a budget")
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionNameConflict, corev1.ConditionTrue, v2alpha1.ConditionNameConflict,
			And(ContainSubstring("PodDisruptionBudget"), ContainSubstring("exists and has no owner"))))
		Expect(least(ctx, s)).To(Equal(7))

		By("trying again later")
		Expect(shared.api.Delete(ctx, foreign)).To(Succeed())
		s.advance(2 * lifecycle.ConflictDelay)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(least(ctx, s)).To(Equal(2))
		Expect(s.conditions(ctx)).To(HaveKeyWithValue(v2alpha1.ConditionNameConflict, corev1.ConditionFalse))
	})
})
