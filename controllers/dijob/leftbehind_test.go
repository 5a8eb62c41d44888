// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
)

// No garbage collector runs beside the API server of these specs. That is the state after it missed the deletion of
// a job: a new job had the name before the collector watched again.
var _ = Describe("A job whose earlier one of the name left objects behind", func() {
	const patient = time.Minute

	// again deletes the job and submits it a second time, and returns the first one.
	again := func(ctx context.Context, s *space) *v2alpha1.DIJob {
		first := s.job(ctx)
		Expect(shared.api.Delete(ctx, first)).To(Succeed())
		s.submit(ctx, first.Spec)
		return first
	}

	// workers is a worker-led job with a list of peers and a disruption budget.
	workers := func(ctx context.Context) *space {
		s := newSharedSpace(ctx)
		s.submit(ctx, v2alpha1.DIJobSpec{
			Disruption: &v2alpha1.Disruption{MaxUnavailable: ptr.To(intstr.FromInt32(1))},
			Tasks:      []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: podTemplate()}},
		})
		Expect(s.settle(ctx)).To(Succeed())
		return s
	}

	DescribeTable("deletes them, and runs", func(ctx SpecContext, submit func(context.Context) *space) {
		s := submit(ctx)
		first := again(ctx, s)
		left := s.ownedBy(ctx, first.UID)
		Expect(left).NotTo(BeEmpty())

		By("leaving them to the garbage collector first")
		recorder := s.record()
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.ownedBy(ctx, first.UID)).To(ContainElements(left))

		s.advance(patient)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.ownedBy(ctx, first.UID)).To(BeEmpty())
		Expect(s.ownedBy(ctx, s.job(ctx).UID)).To(ContainElement(HavePrefix("pod ")))
		Expect(s.conditions(ctx)).NotTo(HaveKeyWithValue(v2alpha1.ConditionNameConflict, corev1.ConditionTrue))

		pods := len(slices.DeleteFunc(slices.Clone(left), func(object string) bool { return !strings.HasPrefix(object, "pod ") }))
		Expect(slices.DeleteFunc(eventsOf(recorder), func(event string) bool { return !strings.Contains(event, v2alpha1.ReasonLeftBehind) })).To(ConsistOf(
			HavePrefix("Warning LeftBehind deleted %d pods and %d other objects that an earlier job of this name left behind", pods, len(left)-pods)))
	},
		Entry("if it is worker-led", workers),
		Entry("if it is coordinator-led", func(ctx context.Context) *space {
			s := newLed(ctx, v2alpha1.CleanPodPolicyRunning)
			Expect(s.settle(ctx)).To(Succeed())
			s.askForReplicas(ctx)
			Expect(s.settle(ctx)).To(Succeed())
			return s
		}),
	)

	It("keeps pods that the deletion orphaned, although its cache has their owner", func(ctx SpecContext) {
		s := workers(ctx)
		first := s.job(ctx)
		cached := s.pods(ctx)
		s.operator = s.newOperator(staleList(func(pods *corev1.PodList) { pods.Items = slices.Clone(cached) }))
		for i := range cached {
			orphan := cached[i].DeepCopy()
			orphan.OwnerReferences = nil
			Expect(shared.api.Update(ctx, orphan)).To(Succeed())
		}
		again(ctx, s)
		Expect(s.settle(ctx)).To(Succeed())
		s.advance(patient)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(len(cached)))
		Expect(s.ownedBy(ctx, first.UID)).NotTo(ContainElement(HavePrefix("pod ")))
	})

	It("keeps the pods of a job that has the name now, although its cache has an earlier one", func(ctx SpecContext) {
		s := workers(ctx)
		first := again(ctx, s)
		s.advance(patient)
		Expect(s.settle(ctx)).To(Succeed())
		s.advance(patient)
		Expect(s.settle(ctx)).To(Succeed())
		second := s.ownedBy(ctx, s.job(ctx).UID)
		Expect(second).To(ContainElement(HavePrefix("pod ")))

		live := s.operator.live
		s.operator = s.newOperator(interceptor.Funcs{Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if job, isJob := object.(*v2alpha1.DIJob); isJob {
				first.DeepCopyInto(job)
				return nil
			}
			return next.Get(ctx, key, object, options...)
		}})
		s.operator.live = live
		for range 3 {
			_ = s.reconcile(ctx)
			s.advance(patient)
		}
		Expect(s.ownedBy(ctx, s.job(ctx).UID)).To(ContainElements(second))
	})
})

// ownedBy returns the objects that a job controls, each with its kind.
func (s *space) ownedBy(ctx context.Context, job types.UID) []string {
	GinkgoHelper()
	var found []string
	add := func(kind string, object client.Object) {
		if slices.Contains(controllers.OwnerUID(object), string(job)) {
			found = append(found, kind+" "+object.GetName())
		}
	}
	var pods corev1.PodList
	var services corev1.ServiceList
	var configMaps corev1.ConfigMapList
	var budgets policyv1.PodDisruptionBudgetList
	for _, list := range []client.ObjectList{&pods, &services, &configMaps, &budgets} {
		Expect(shared.api.List(ctx, list, client.InNamespace(s.name))).To(Succeed())
	}
	for i := range pods.Items {
		add("pod", &pods.Items[i])
	}
	for i := range services.Items {
		add("service", &services.Items[i])
	}
	for i := range configMaps.Items {
		add("ConfigMap", &configMaps.Items[i])
	}
	for i := range budgets.Items {
		add("PodDisruptionBudget", &budgets.Items[i])
	}
	return found
}
