// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// forbid creates a policy that refuses updates and deletions in the space, and returns once probe fails
// because of it. The returned function deletes the policy.
func (s *space) forbid(ctx context.Context, group, resource string, probe func() error) func() {
	GinkgoHelper()
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.name}}
	rule := admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: here,
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update, admissionv1.Delete}, Rule: rule,
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "leave it alone"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: s.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	Expect(shared.api.Create(ctx, policy)).To(Succeed())
	Expect(shared.api.Create(ctx, binding)).To(Succeed())
	allow := func() { _ = client.IgnoreNotFound(shared.api.Delete(context.WithoutCancel(ctx), binding)) }
	DeferCleanup(allow)
	Eventually(probe).WithContext(ctx).WithTimeout(patience).Should(MatchError(ContainSubstring("leave it alone")))
	return func() {
		allow()
		Eventually(probe).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}
}

// dryDelete deletes a pod as a dry run.
func (s *space) dryDelete(ctx context.Context) error {
	return shared.api.Delete(ctx, &s.pods(ctx)[0], client.DryRunAll)
}

// dryUpdate updates the list's status as a dry run.
func (s *space) dryUpdate(ctx context.Context) error {
	list := s.membership(ctx)
	list.Labels = map[string]string{"probe": "true"}
	return shared.api.Status().Update(ctx, list, client.DryRunAll)
}

// countRefused returns a counter of the writes that the API server refuses from now on. It excludes
// creations.
func (s *space) countRefused() *atomic.Int32 {
	var refused atomic.Int32
	s.operator = s.newOperator(intercept(func(verb string, _ client.Object, write func() error) error {
		err := write()
		if verb != creates && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) {
			refused.Add(1)
		}
		return err
	}))
	return &refused
}

// reconcileFor reconciles the job for a time, more often than refused writes may be repeated. Events do
// not wait for the backoff of the queue.
func (s *space) reconcileFor(ctx context.Context, long time.Duration) {
	const step = state.FirstRefusalDelay - time.Second
	for range int(long / step) {
		_ = s.reconcile(ctx)
		s.advance(step)
	}
}

var _ = Describe("A job whose writes the API server refuses", func() {
	const failing = v2alpha1.ConditionReplicaFailure

	It("costs few refused deletions despite many events, and continues when they succeed", func(ctx SpecContext) {
		const pods = 40
		s := newSpace(ctx)
		refused := s.countRefused()
		s.clock()
		s.submitMany(ctx, pods)
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		allow := s.forbid(ctx, "", "pods", func() error { return s.dryDelete(ctx) })
		s.suspend(ctx, true)
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(s.podNames(ctx)).To(HaveLen(pods))
		Expect(refused.Load()).To(And(BeNumerically(">", 16), BeNumerically("<", 120)))
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionTrue, v2alpha1.ReasonFailedDelete, And(
			HavePrefix("deleting pod job-collector-"), ContainSubstring("leave it alone"), HaveSuffix("; 39 others wait"))))
		Expect(s.job(ctx).Status.ObservedGeneration).To(Equal(s.job(ctx).Generation), "the condition describes this generation")

		By("a change of the job, which is tried at once")
		before := refused.Load()
		s.change(ctx, func(spec *v2alpha1.DIJobSpec) { spec.ActiveDeadlineSeconds = ptr.To[int64](1 << 20) })
		_ = s.reconcile(ctx)
		Expect(refused.Load()).To(BeNumerically(">", before))

		By("a policy that is gone")
		allow()
		s.advance(5 * time.Minute)
		Expect(s.settle(ctx)).To(Succeed())
		for _, pod := range s.pods(ctx) {
			Expect(pod.DeletionTimestamp).NotTo(BeNil())
		}
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionFalse, "", BeEmpty()))
		Expect(s.job(ctx).Status.ObservedGeneration).To(Equal(s.job(ctx).Generation))
	})

	It("costs few refused updates of its list", func(ctx SpecContext) {
		s := newSpace(ctx)
		refused := s.countRefused()
		recorder := s.record()
		s.clock()
		s.submitLed(ctx, "")
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		s.askForReplicas(ctx)
		allow := s.forbid(ctx, v2alpha1.GroupName, "memberships/status", func() error { return s.dryUpdate(ctx) })
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(refused.Load()).To(And(BeNumerically(">", 2), BeNumerically("<", 20)))
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionTrue, v2alpha1.ReasonFailedUpdate, HavePrefix("changing membership job is refused: ")))
		Expect(eventsOf(recorder)).To(ContainElement(HavePrefix("Warning FailedUpdate updating the status of membership")))
		allow()
		s.advance(5 * time.Minute)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(5))
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionFalse, "", BeEmpty()))
	})

	It("costs few refused writes of finalizers", func(ctx SpecContext) {
		s := newQueue(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		s.admit(ctx)
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		s.suspend(ctx, true)
		Expect(s.settle(ctx)).To(Succeed())
		refused := s.countRefused()
		s.operator.options.Kueue = func(context.Context) (bool, error) { return true, nil }
		s.clock()
		s.endDeleted(ctx)
		s.forbid(ctx, "", "pods", func() error { return s.dryDelete(ctx) })
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(s.podNames(ctx)).To(HaveLen(3))
		Expect(refused.Load()).To(And(BeNumerically(">", 3), BeNumerically("<", 30)))
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionTrue, v2alpha1.ReasonFailedUpdate, HavePrefix("changing pod job-")))
	})

	It("costs few refused deletions of itself, once its time is over", func(ctx SpecContext) {
		s := newSpace(ctx)
		refused := s.countRefused()
		recorder := s.record()
		s.clock()
		s.submitWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		s.endAll(ctx)
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobSucceeded))
		s.change(ctx, func(spec *v2alpha1.DIJobSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](1) })
		allow := s.forbid(ctx, v2alpha1.GroupName, "dijobs", func() error { return shared.api.Delete(ctx, s.job(ctx), client.DryRunAll) })
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(refused.Load()).To(And(BeNumerically(">", 2), BeNumerically("<", 12)))
		Expect(eventsOf(recorder)).To(ContainElement(HavePrefix("Warning FailedDelete deleting job")))
		allow()
		s.advance(5 * time.Minute)
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(apierrors.IsNotFound(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, &v2alpha1.DIJob{}))).To(BeTrue())
	})

	It("costs few refused updates of its PodGroup, and no pod beyond it", func(ctx SpecContext) {
		installGroups(ctx, "coscheduling.yaml")
		s := newSpace(ctx)
		refused := s.countRefused()
		s.leaveGangs()
		s.operator.gangs.Setting = gang.Coscheduling
		s.clock()
		s.submitGang(ctx, v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(3))
		allow := s.forbid(ctx, coschedulingGroups.Group, "podgroups", func() error {
			return shared.api.Delete(ctx, s.group(ctx, coschedulingGroups), client.DryRunAll)
		})
		s.change(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Tasks[1].Replicas = ptr.To[int32](3) })
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(refused.Load()).To(And(BeNumerically(">", 2), BeNumerically("<", 20)))
		Expect(s.podNames(ctx)).To(HaveLen(3))
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionTrue, v2alpha1.ReasonFailedUpdate, HavePrefix("changing PodGroup.scheduling.x-k8s.io di-job is refused: ")))
		allow()
		s.advance(5 * time.Minute)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(4))
	})

	It("costs few refused adoptions", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitLegacy(ctx, "0").team(ctx)
		refused := s.countRefused()
		s.clock()
		s.forbid(ctx, "", "pods", func() error { return s.dryDelete(ctx) })
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(refused.Load()).To(And(BeNumerically(">", 4), BeNumerically("<", 80)))
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionTrue, v2alpha1.ReasonFailedUpdate, HavePrefix("changing pod job-")))
	})
})
