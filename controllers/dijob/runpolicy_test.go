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
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/lifecycle/workerled"
	"opendilab.org/di-orchestrator/internal/names"
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
		Entry("before anything of it was seen", func(context.Context, *space) {}),
		Entry("Pending", func(ctx context.Context, s *space) {
			whole := s.operator.client
			s.operator.client = interceptor.NewClient(shared.api, interceptor.Funcs{
				List: listByController,
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					return errors.New("not now")
				},
			})
			Expect(s.reconcile(ctx)).NotTo(Succeed())
			Expect(s.phase(ctx)).To(Equal(v2alpha1.JobPending))
			s.operator.client = whole
		}),
		Entry("Starting", func(ctx context.Context, s *space) {
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.phase(ctx)).To(Equal(v2alpha1.JobStarting))
		}),
		Entry("Running", func(ctx context.Context, s *space) { s.start(ctx) }),
		Entry("Restarting", func(ctx context.Context, s *space) {
			s.start(ctx)
			s.hold(ctx, "job-learner-0")
			s.end(ctx, "job-collector-0", 1)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRestarting))
		}),
	)

	It("has no pods while it is Rescheduling, and keeps no allocation in mind", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Preemptible = true })
		Expect(s.settle(ctx)).To(Succeed())
		s.allocate(ctx, "a", "a", "a")
		s.start(ctx)
		release := s.hold(ctx, "job-learner-0")
		s.allocate(ctx, "b", "b", "b")
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRescheduling))
		s.suspend(ctx, true)
		s.allocate(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		release()
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(BeEmpty())
		Expect(s.job(ctx)).To(condition(suspended, corev1.ConditionTrue, suspended, Not(BeEmpty())))
		s.suspend(ctx, false)
		Expect(s.settle(ctx)).To(Succeed())
		s.allocate(ctx, "c", "c", "c")
		s.start(ctx)
		Expect(s.pods(ctx)[0].Annotations).To(HaveKeyWithValue("diengine/node", "c"))
	})
})

// releaseAll lets the pods go that are held and deleted.
func (s *space) releaseAll(ctx context.Context) {
	for _, pod := range s.pods(ctx) {
		pod.Finalizers = nil
		Expect(shared.api.Update(ctx, &pod)).To(Succeed())
	}
}

// resumed returns when the job was resumed.
func (s *space) resumed(ctx context.Context) time.Time {
	GinkgoHelper()
	for _, condition := range s.job(ctx).Status.Conditions {
		if condition.Type == v2alpha1.ConditionSuspended && condition.Status == corev1.ConditionFalse {
			return condition.LastTransitionTime.Time
		}
	}
	Fail("the job was not resumed")
	return time.Time{}
}

var _ = Describe("The time of a worker-led job", func() {
	It("begins again when the job is resumed", func(ctx SpecContext) {
		s := newSpace(ctx)
		at := s.clock()
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) {
			spec.ActiveDeadlineSeconds, spec.Suspend = ptr.To(int64(600)), ptr.To(true)
		})
		Expect(s.settle(ctx)).To(Succeed())
		*at = at.Add(time.Hour)
		Expect(s.settle(ctx)).To(Succeed())
		s.suspend(ctx, false)
		s.start(ctx)
		Expect(s.nextAt(ctx)).To(BeTemporally("==", s.resumed(ctx).Add(10*time.Minute)))
		*at = at.Add(9 * time.Minute)
		s.suspend(ctx, true)
		Expect(s.settle(ctx)).To(Succeed())
		s.suspend(ctx, false)
		s.start(ctx)
		Expect(s.nextAt(ctx)).To(BeTemporally("==", s.resumed(ctx).Add(10*time.Minute)))
		*at = at.Add(10 * time.Minute)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobFailed))
	})

	It("ends while it is restarted, too", func(ctx SpecContext) {
		s := newSpace(ctx)
		at, recorder := s.clock(), s.record()
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.ActiveDeadlineSeconds = ptr.To(int64(600)) })
		s.start(ctx)
		release := s.hold(ctx, "job-learner-0")
		s.end(ctx, "job-collector-0", 1)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRestarting))
		// The API server says when the job was made.
		made := s.job(ctx).CreationTimestamp.Time
		// The pod that is held is looked at sooner, as it may be stuck.
		Expect(s.nextAt(ctx)).To(BeTemporally("<=", made.Add(10*time.Minute)))
		*at = made.Add(11 * time.Minute)
		Expect(s.settle(ctx)).To(Succeed())
		release()
		Expect(s.settle(ctx)).To(Succeed())
		job := s.job(ctx)
		Expect(job).To(condition("Failed", corev1.ConditionTrue, "JobFailed", Equal("the job exceeded its deadline of 600 seconds")))
		Expect(job.Status.LastFailure.Reason).To(Equal(v2alpha1.ReasonDeadlineExceeded))
		Expect(eventsOf(recorder)).To(ContainElement("Warning JobFailed the job exceeded its deadline of 600 seconds"))
		Expect(s.podNames(ctx)).To(BeEmpty())
	})

	DescribeTable("after its end is as long as is asked for, whoever the operator is",
		func(ctx SpecContext, seconds int32) {
			s := newSpace(ctx)
			s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.TTLSecondsAfterFinished = &seconds })
			at := s.clock()
			s.start(ctx)
			for _, name := range s.podNames(ctx) {
				s.end(ctx, name, 0)
			}
			Expect(s.reconcile(ctx)).To(Succeed())
			Expect(state.IsFinished(&s.job(ctx).Status)).To(BeTrue())
			s.operator = s.newOperator(interceptor.Funcs{})
			s.operator.now = func() time.Time { return *at }
			if seconds > 0 {
				end := s.job(ctx).Status.CompletionTimestamp.Add(time.Duration(seconds) * time.Second)
				Expect(s.nextAt(ctx)).To(BeTemporally("==", end))
				Expect(s.job(ctx).DeletionTimestamp).To(BeNil())
				*at = end
			}
			Expect(s.reconcile(ctx)).To(Succeed())
			err := shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, &v2alpha1.DIJob{})
			Expect(apierrors.IsNotFound(err)).To(BeTrue())
			Expect(s.reconcile(ctx)).To(Succeed())
		},
		Entry("none at all", int32(0)),
		Entry("an hour", int32(3600)),
	)
})

var _ = Describe("A worker-led job that has finished", func() {
	It("is not touched by what is written into its spec", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWorkers(ctx, 0)
		s.start(ctx)
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
		Expect(s.settle(ctx)).To(Succeed())
		finished, before := s.job(ctx).Status, s.identityOf(ctx)
		s.change(ctx, func(spec *v2alpha1.DIJobSpec) {
			spec.Suspend, spec.BackoffLimit, spec.ActiveDeadlineSeconds = ptr.To(true), ptr.To(int32(9)), ptr.To(int64(1))
			spec.Tasks[0].Replicas = ptr.To(int32(3))
		})
		s.operator.now = func() time.Time { return time.Now().Add(time.Hour) }
		Expect(s.settle(ctx)).To(Succeed())
		after := s.job(ctx).Status
		Expect(s.identityOf(ctx)).To(Equal(before))
		finished.ObservedGeneration = after.ObservedGeneration
		Expect(after).To(Equal(finished))
	})
})

var _ = Describe("A job that says who runs it", func() {
	It("is not touched in any respect where that is somebody else", func(ctx SpecContext) {
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
		s.operator.now = func() time.Time { return time.Now().Add(time.Hour) }
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.job(ctx).ResourceVersion).To(Equal(job.ResourceVersion))
		Expect(s.podNames(ctx)).To(BeEmpty())
		Expect(s.services(ctx)).To(BeEmpty())
		Expect(s.writes).To(BeZero())
		Expect(eventsOf(recorder)).To(BeEmpty())
		Expect(workerled.WantsPlace(s.job(ctx))).To(BeFalse(), "the allocator does not place it either")

		job.Spec.ManagedBy = ptr.To("example.com/other")
		Expect(shared.api.Update(ctx, job)).To(MatchError(ContainSubstring("spec.managedBy: Invalid value: is immutable")))
	})

	It("runs where that is the operator", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.ManagedBy = ptr.To(names.ManagedByName) })
		s.start(ctx)
	})
})

var _ = Describe("The pods of a worker-led job", func() {
	It("are for the scheduler that the job names", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Scheduling = &v2alpha1.Scheduling{SchedulerName: "volcano"} })
		Expect(s.settle(ctx)).To(Succeed())
		for i, pods := 0, s.pods(ctx); i < len(pods); i++ {
			Expect(pods[i].Spec.SchedulerName).To(Equal("volcano"))
		}
	})
})
