// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// change updates the spec of the space's job.
func (s *space) change(ctx context.Context, change func(*v2alpha1.DIJobSpec)) {
	GinkgoHelper()
	job := s.job(ctx)
	change(&job.Spec)
	Expect(shared.api.Update(ctx, job)).To(Succeed())
}

func (s *space) suspend(ctx context.Context, wanted bool) {
	GinkgoHelper()
	s.change(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Suspend = &wanted })
}

var _ = Describe("A worker-led job that is suspended", func() {
	const suspended = v2alpha1.ConditionSuspended

	DescribeTable("has no pods, and starts again when it is resumed",
		func(ctx SpecContext, bring func(context.Context, *space)) {
			s := newSpace(ctx)
			recorder := s.record()
			s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.BackoffLimit = ptr.To(int32(5)) })
			bring(ctx, s)
			before := s.job(ctx).Status
			s.suspend(ctx, true)
			Expect(s.settle(ctx)).To(Succeed())
			for i, pods := 0, s.pods(ctx); i < len(pods); i++ {
				Expect(pods[i].DeletionTimestamp).NotTo(BeNil())
			}
			s.releaseAll(ctx)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.podNames(ctx)).To(BeEmpty())
			Expect(s.services(ctx)).To(BeEmpty())
			Expect(s.phase(ctx)).To(Equal(v2alpha1.JobPending))
			Expect(s.job(ctx)).To(condition(suspended, corev1.ConditionTrue, suspended, Not(BeEmpty())))

			s.suspend(ctx, false)
			s.start(ctx)
			job := s.job(ctx)
			Expect(job).To(condition(suspended, corev1.ConditionFalse, v2alpha1.ReasonResumed, Not(BeEmpty())))
			Expect(job.Status.Restarts).To(Equal(before.Restarts))
			Expect(eventsOf(recorder)).To(ContainElements(HavePrefix("Normal Suspended "), HavePrefix("Normal Resumed ")))
		},
		Entry("Pending", func(ctx context.Context, s *space) {
			whole := s.operator.client
			s.operator.client = interceptor.NewClient(shared.operator, interceptor.Funcs{
				List: listByController,
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					return errors.New("not now")
				},
			})
			Expect(s.reconcile(ctx)).NotTo(Succeed())
			Expect(s.phase(ctx)).To(Equal(v2alpha1.JobPending))
			s.operator.client = whole
		}),
		Entry("Running", func(ctx context.Context, s *space) { s.start(ctx) }),
	)
})

// releaseAll releases the deleted pods that hold has kept.
func (s *space) releaseAll(ctx context.Context) {
	for _, pod := range s.pods(ctx) {
		pod.Finalizers = nil
		Expect(shared.api.Update(ctx, &pod)).To(Succeed())
	}
}

var _ = Describe("The time of a worker-led job", func() {
	It("after its end is as long as its TTL, also with another operator", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](3600) })
		at := s.clock()
		s.start(ctx)
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(state.IsFinished(&s.job(ctx).Status)).To(BeTrue())
		s.operator = s.newOperator(interceptor.Funcs{})
		end := s.job(ctx).Status.CompletionTimestamp.Add(time.Hour)
		Expect(s.nextAt(ctx)).To(BeTemporally("==", end))
		Expect(s.job(ctx).DeletionTimestamp).To(BeNil())
		*at = end
		Expect(s.reconcile(ctx)).To(Succeed())
		err := shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, &v2alpha1.DIJob{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		Expect(s.reconcile(ctx)).To(Succeed())
	})
})

var _ = Describe("A job that says who runs it", func() {
	It("is not touched if that is another controller", func(ctx SpecContext) {
		s := newSpace(ctx)
		recorder := s.record()
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) {
			spec.ManagedBy, spec.Preemptible = ptr.To("kueue.x-k8s.io/multikueue"), true
			spec.TTLSecondsAfterFinished, spec.ActiveDeadlineSeconds = ptr.To(int32(0)), ptr.To(int64(1))
		})
		job := s.job(ctx)
		job.Status.Phase = v2alpha1.JobRunning
		job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: "Succeeded", Status: corev1.ConditionTrue}}
		Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
		s.advance(time.Hour)
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.job(ctx).ResourceVersion).To(Equal(job.ResourceVersion))
		Expect(s.podNames(ctx)).To(BeEmpty())
		Expect(s.services(ctx)).To(BeEmpty())
		Expect(s.writes).To(BeZero())
		Expect(eventsOf(recorder)).To(BeEmpty())
		Expect(placements.WantsPlace(s.job(ctx))).To(BeFalse(), "the allocator does not place it either")

		job.Spec.ManagedBy = ptr.To("example.com/other")
		Expect(shared.api.Update(ctx, job)).To(MatchError(ContainSubstring("spec.managedBy: Invalid value: is immutable")))
	})
})
