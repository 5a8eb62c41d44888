// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// keep makes the operator require the history of jobs.
func (s *space) keep() {
	s.operator.options.History.Required = true
}

// deleteJob deletes the space's job.
func (s *space) deleteJob(ctx context.Context) {
	GinkgoHelper()
	Expect(shared.api.Delete(ctx, s.job(ctx), client.PropagationPolicy("Background"))).To(Succeed())
}

func (s *space) isGone(ctx context.Context) bool {
	err := shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, &v2alpha1.DIJob{})
	return apierrors.IsNotFound(err)
}

// running are the pods that are not being deleted.
func (s *space) running(ctx context.Context) []corev1.Pod {
	return keep(s.pods(ctx), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp.IsZero() })
}

var _ = Describe("A job whose history is required", func() {
	DescribeTable("is held before it has a pod, and stays after its deletion until the history lets it go",
		func(ctx SpecContext, submit func(context.Context, *space)) {
			s := newSpace(ctx)
			s.clock()
			s.operator = s.newOperator(onCreate(func(client.Object) error {
				Expect(s.job(ctx).Finalizers).To(ConsistOf(names.FinalizerHistory))
				return nil
			}))
			recorder := s.record()
			s.keep()
			submit(ctx, s)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.running(ctx)).NotTo(BeEmpty())
			phase := s.phase(ctx)
			s.deleteJob(ctx)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.running(ctx)).To(BeEmpty())
			Expect(s.conditions(ctx)).NotTo(HaveKey(v2alpha1.ConditionTerminating), "the history usually takes a second")
			s.advance(10 * time.Second)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.job(ctx)).To(condition(v2alpha1.ConditionTerminating, corev1.ConditionTrue, v2alpha1.ReasonWaitsForHistory, ContainSubstring("10m at most")))
			Expect(s.phase(ctx)).To(Equal(phase), "the history has yet to read it")

			old := &v1alpha1.DIJob{}
			Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, old)).To(Succeed())
			Expect(old.Finalizers).To(ConsistOf(names.FinalizerHistory))
			Expect(shared.api.Patch(ctx, old, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
			Expect(s.isGone(ctx)).To(BeTrue())
			Expect(s.reconcile(ctx)).To(Succeed())
			Expect(eventsOf(recorder)).To(And(ContainElement(HavePrefix("Warning WaitsForHistory ")), Not(ContainElement(HavePrefix("Warning NotRecorded ")))))
		},
		Entry("led by its workers", func(ctx context.Context, s *space) { s.submitWorkers(ctx, 1) }),
		Entry("led by its coordinator", func(ctx context.Context, s *space) { s.submitLed(ctx, "") }),
	)

	It("is let go with an Event after a time by the clock of one operator", func(ctx SpecContext) {
		s := newSpace(ctx)
		at := s.clock()
		s.keep()
		s.submitWorkers(ctx, 1)
		s.start(ctx)
		s.deleteJob(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		*at = at.Add(state.DefaultHistoryTimeout - time.Minute)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.nextAt(ctx)).To(BeTemporally("==", at.Add(time.Minute)))

		By("waiting again with another operator")
		s.operator = s.newOperator(interceptor.Funcs{})
		s.keep()
		recorder := s.record()
		*at = at.Add(time.Minute)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.isGone(ctx)).To(BeFalse())
		*at = at.Add(state.DefaultHistoryTimeout)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.isGone(ctx)).To(BeTrue())
		Expect(eventsOf(recorder)).To(ContainElement(HavePrefix("Warning NotRecorded let go of the deleted job after 10m")))
	})

	It("is not lost by its TTL, and keeps the pods that have ended", func(ctx SpecContext) {
		s := newSpace(ctx)
		at := s.clock()
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) {
			spec.TTLSecondsAfterFinished, spec.CleanPodPolicy = ptr.To[int32](60), v2alpha1.CleanPodPolicyNone
		})
		s.start(ctx)
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobSucceeded))
		Expect(s.job(ctx).Finalizers).To(BeEmpty())

		By("requiring the history of a job that has ended")
		s.operator = s.newOperator(interceptor.Funcs{})
		s.keep()
		*at = at.Add(time.Hour)
		Expect(s.settle(ctx)).To(Succeed())
		job := s.job(ctx)
		Expect(job.DeletionTimestamp).NotTo(BeNil())
		Expect(job.Finalizers).To(ConsistOf(names.FinalizerHistory))
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.running(ctx)).NotTo(BeEmpty())
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
	})

	It("loses the finalizer once it is not required anymore", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.keep()
		s.submitWorkers(ctx, 1)
		s.start(ctx)
		s.operator = s.newOperator(interceptor.Funcs{})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Finalizers).To(BeEmpty())
		s.keep()
		Expect(s.settle(ctx)).To(Succeed())
		s.deleteJob(ctx)
		s.operator = s.newOperator(interceptor.Funcs{})
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.isGone(ctx)).To(BeTrue())
	})

	It("of another controller gets no finalizer, and loses the one of its manifest", func(ctx SpecContext) {
		s := newSpace(ctx)
		at := s.clock()
		s.keep()
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.ManagedBy = ptr.To("example.com/other") })
		Expect(s.reconcile(ctx)).To(Succeed())
		job := s.job(ctx)
		Expect(job.Finalizers).To(BeEmpty())
		job.Finalizers = []string{names.FinalizerHistory}
		Expect(shared.api.Update(ctx, job)).To(Succeed())
		Expect(s.reconcile(ctx)).To(Succeed())
		s.deleteJob(ctx)
		Expect(s.nextAt(ctx)).To(BeTemporally("==", at.Add(state.DefaultHistoryTimeout)))
		Expect(s.isGone(ctx)).To(BeFalse())
		*at = at.Add(state.DefaultHistoryTimeout)
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.isGone(ctx)).To(BeTrue())
	})

	It("runs although the API server refuses the finalizer, but is not deleted by its TTL then", func(ctx SpecContext) {
		s := newSpace(ctx)
		at := s.clock()
		s.operator = s.newOperator(intercept(func(verb string, object client.Object, write func() error) error {
			if _, isJob := object.(*v2alpha1.DIJob); isJob && verb == patches {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "dijobs"}, object.GetName(), nil)
			}
			return write()
		}))
		s.keep()
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](60) })
		repeat := func() {
			for range 5 {
				_ = s.reconcile(ctx)
			}
		}
		repeat()
		s.run(ctx)
		repeat()
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
		repeat()
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobSucceeded))
		*at = at.Add(time.Hour)
		repeat()
		Expect(s.job(ctx).DeletionTimestamp).To(BeNil())
	})
})
