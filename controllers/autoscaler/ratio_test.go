// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("The ratio rule", func() {
	It("lets the collectors follow the learner up and down, and says why", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(2))
		w.pass(ctx, 12)
		Expect(w.collectors(ctx)).To(BeNumerically("~", 4, 1), "80 samples/s by collectors that make 20")
		Expect(w.condition(ctx)).To(Equal("True Following"))

		w.learner = 160
		w.pass(ctx, 20)
		Expect(w.collectors(ctx)).To(BeNumerically("~", 8, 1))

		w.learner = 40
		w.pass(ctx, 40)
		Expect(w.collectors(ctx)).To(BeNumerically("~", 2, 1))

		status := w.job(ctx).Status.Autoscaling.Ratio
		Expect(status.ProducerCapacity).To(BeNumerically("~", 20_000, 2_000))
		Expect(status.ConsumerCapacity).To(BeNumerically("~", 40_000, 4_000))
		Expect(status.Replicas).To(HaveKeyWithValue("collector", w.collectors(ctx)))
		Expect(w.events.Events).To(Receive(And(HavePrefix("Normal Autoscaled collector 2 -> "), ContainSubstring("the consumer takes"))))
		job := w.job(ctx)
		Expect(ptr.Deref(job.Spec.Tasks[1].Replicas, 0)).To(Equal(w.collectors(ctx)), "both counts of the elastic task are written")
		Expect(managers(job)).To(ContainElement("di-autoscaler"))
	})

	It("keeps the size until both sides report, and says so once", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(3))
		for range 3 {
			w.clock.SetTime(w.clock.Now().Add(interval))
			Expect(w.reconcile(ctx)).To(Succeed())
		}
		Expect(w.condition(ctx)).To(Equal("False WaitingForReports"))
		Expect(w.collectors(ctx)).To(BeEquivalentTo(3))
	})

	It("keeps the size when the reports end", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(2))
		w.pass(ctx, 12)
		size := w.collectors(ctx)
		w.learner = 800
		for range 10 {
			w.clock.SetTime(w.clock.Now().Add(interval))
			Expect(w.reconcile(ctx)).To(Succeed())
		}
		Expect(w.condition(ctx)).To(Equal("False WaitingForReports"))
		Expect(w.collectors(ctx)).To(Equal(size))
	})

	It("continues from the status after a restart of the operator", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(2))
		w.pass(ctx, 16)
		size, status := w.collectors(ctx), w.job(ctx).Status.Autoscaling.Ratio
		w.restart(interceptor.Funcs{})
		w.pass(ctx, 4)
		Expect(w.collectors(ctx)).To(Equal(size))
		after := w.job(ctx).Status.Autoscaling.Ratio
		Expect(after.ConsumerCapacity).To(BeNumerically("~", status.ConsumerCapacity, status.ConsumerCapacity/10))
		Expect(after.GrownAt).To(Equal(status.GrownAt))
	})

	It("follows the learner in a queue of Kueue", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(2))
		nameQueue(ctx, w)
		w.pass(ctx, 12)
		Expect(w.collectors(ctx)).To(BeNumerically("~", 4, 1), "growth beyond the quota waits")
		Expect(w.condition(ctx)).To(Equal("True Following"))
	})

	It("advises the allocator about a preemptible job, and never writes the size", func(ctx SpecContext) {
		job := newJob(2)
		job.Spec.Preemptible, job.Spec.Elastic.OnResize = true, v2alpha1.OnResizeContinue
		w := newWorld(ctx, job)
		w.queue = 400
		place := func(collectors int) {
			GinkgoHelper()
			w.status(ctx, func(status *v2alpha1.DIJobStatus) { status.Allocation = slices.Repeat([]string{"node"}, 1+collectors) })
		}
		place(2)
		w.pass(ctx, 12)
		Expect(w.condition(ctx)).To(Equal("True Advising"))
		Expect(w.collectors(ctx)).To(BeEquivalentTo(2), "the spec stays")
		Expect(w.job(ctx).Status.Autoscaling.Ratio.Replicas["collector"]).To(BeNumerically("~", 4, 1))
		Expect(w.events.Events).NotTo(Receive(ContainSubstring("Autoscaled")))

		place(4)
		w.pass(ctx, 1)
		Expect(w.job(ctx).Status.Autoscaling.Ratio.GrownAt).NotTo(BeNil(), "what the allocator did counts as a resize")
	})

	It("refuses a rule of a preemptible job that restarts for each resize", func(ctx SpecContext) {
		job := newJob(2)
		job.Namespace, job.Spec.Preemptible = specs.Namespace(ctx, api), true
		Expect(api.Create(ctx, job)).To(MatchError(ContainSubstring("a preemptible job with a ratio rule needs elastic.onResize: Continue")))
	})

	It("does nothing about a job that does not run", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(2))
		w.pass(ctx, 2)
		version := ""
		for name, change := range map[string]func(*v2alpha1.DIJobStatus){
			"restarting": func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobRestarting },
			"finished":   func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded },
		} {
			w.status(ctx, change)
			w.learner = 800
			w.clock.SetTime(w.clock.Now().Add(interval))
			w.report(ctx, 30, 2)
			version = w.job(ctx).ResourceVersion
			Expect(w.reconcile(ctx)).To(Succeed())
			Expect(w.job(ctx).ResourceVersion).To(Equal(version), name)
		}
	})

	DescribeTable("leaves the size to another master", func(ctx SpecContext, prepare func(context.Context, *world), message string) {
		w := newWorld(ctx, newJob(2))
		prepare(ctx, w)
		w.pass(ctx, 3)
		Expect(w.collectors(ctx)).To(BeEquivalentTo(2))
		Expect(w.condition(ctx)).To(Equal("False OtherMaster"))
		Expect(w.events.Events).To(Receive(ContainSubstring(message)))
		Expect(w.events.Events).NotTo(Receive(), "one event of the transition")
	},
		Entry("a HorizontalPodAutoscaler", createAutoscaler, `HorizontalPodAutoscaler "collectors" scales the job`),
		Entry("a ScalePlan that is executed", func(ctx context.Context, w *world) {
			w.status(ctx, func(status *v2alpha1.DIJobStatus) {
				status.Scaling = &v2alpha1.ScalingStatus{Plan: &v2alpha1.PlanRecord{Name: "plan", UID: "u", Phase: v2alpha1.PlanExecuting}}
			})
		}, `ScalePlan "plan" is executed first`),
	)

	It("asks for HorizontalPodAutoscalers of the namespace at most twice a minute, and never of others", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(2))
		w.queue = 0 // decisions every 5 seconds
		for range 24 {
			w.clock.SetTime(w.clock.Now().Add(5 * time.Second))
			w.report(ctx, 5, w.collectors(ctx))
			Expect(w.reconcile(ctx)).To(Succeed())
		}
		Expect(w.reads).To(BeNumerically("~", 4, 1))
	})

	It("never overwrites a change that it has not seen", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(2))
		w.restart(interceptor.Funcs{Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			// Admission lets a user set the count in the update that removes the rule.
			w.spec(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Autoscale, spec.Elastic.Replicas = nil, ptr.To[int32](30) })
			return next.Patch(ctx, object, patch, options...)
		}})
		for range 3 {
			w.clock.SetTime(w.clock.Now().Add(interval))
			w.report(ctx, 30, 2)
			if w.collectors(ctx) == 2 {
				Expect(w.reconcile(ctx)).To(Succeed())
			}
		}
		Expect(w.collectors(ctx)).To(BeEquivalentTo(30))
	})

	It("reports a resize that the API server refuses, and keeps the size", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(2))
		w.restart(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Group: v2alpha1.GroupName, Resource: "dijobs"}, "job", context.Canceled)
		}})
		w.pass(ctx, 6)
		Expect(w.collectors(ctx)).To(BeEquivalentTo(2))
		Expect(w.condition(ctx)).To(Equal("False ResizeRefused"))
	})

	It("says when the bounds are too narrow", func(ctx SpecContext) {
		job := newJob(2)
		job.Spec.Elastic.MaxReplicas = ptr.To[int32](3)
		w := newWorld(ctx, job)
		w.queue = 0
		w.pass(ctx, 12)
		Expect(w.collectors(ctx)).To(BeEquivalentTo(3))
		Expect(w.condition(ctx)).To(Equal("True " + ratio.LimitRange))
	})

	It("reads Prometheus where the job says so", func(ctx SpecContext) {
		job := newJob(2)
		job.Spec.Autoscale.Ratio.Prometheus = &v2alpha1.PrometheusSource{
			ProducerCapacity: "g", ConsumerCapacity: "c", Queue: `q{job="$(JOB)"}`, Batch: "b",
		}
		w := newWorld(ctx, job)
		for range 6 {
			w.clock.SetTime(w.clock.Now().Add(interval))
			w.run(ctx, "collector")
			Expect(w.reconcile(ctx)).To(Succeed())
		}
		Expect(w.collectors(ctx)).To(BeNumerically("~", 4, 1))
	})

	It("resizes several pools, the preferred one first", func(ctx SpecContext) {
		job := newJob(2)
		spot := job.Spec.Tasks[1].DeepCopy()
		spot.Name, spot.Type, spot.Replicas = "spot", "", ptr.To[int32](1)
		job.Spec.Tasks = append(job.Spec.Tasks, *spot)
		job.Spec.Elastic.MaxReplicas = ptr.To[int32](40)
		job.Spec.Autoscale.Ratio.Producers = []v2alpha1.ProducerPool{
			{Task: "spot", MinReplicas: ptr.To[int32](0), MaxReplicas: ptr.To[int32](3)}, {Task: "collector"},
		}
		w := newWorld(ctx, job)
		w.learner = 200
		for range 20 {
			w.clock.SetTime(w.clock.Now().Add(interval))
			w.run(ctx, "collector")
			w.run(ctx, "spot")
			w.report(ctx, 30, w.collectors(ctx)+*w.job(ctx).Spec.Tasks[2].Replicas)
			Expect(w.reconcile(ctx)).To(Succeed())
		}
		Expect(*w.job(ctx).Spec.Tasks[2].Replicas).To(BeEquivalentTo(3))
		Expect(w.collectors(ctx)).To(BeNumerically("~", 7, 1))
	})

	It("writes the status at most once a minute while nothing changes", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(4))
		w.pass(ctx, 6)
		writes := 0
		watching, isWatching := w.autoscaler.client.(client.WithWatch)
		Expect(isWatching).To(BeTrue())
		w.autoscaler.client = interceptor.NewClient(watching, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, next client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				writes++
				return next.SubResource(name).Patch(ctx, object, patch, options...)
			},
		})
		w.pass(ctx, 20)
		Expect(writes).To(BeNumerically("<=", 10))
	})

	It("clears its condition when the rule is removed", func(ctx SpecContext) {
		w := newWorld(ctx, newJob(4))
		w.pass(ctx, 4)
		Expect(w.condition(ctx)).To(HavePrefix("True"))
		w.spec(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Autoscale = nil })
		Expect(w.reconcile(ctx)).To(Succeed())
		Expect(strings.TrimSpace(w.condition(ctx))).To(Equal("False"))
	})
})

var _ = Describe("The ratio rule of a coordinator-led job", func() {
	// begin creates a job and its Membership, which is empty.
	begin := func(ctx context.Context, driver v2alpha1.RatioDriver) *world {
		GinkgoHelper()
		w := newWorld(ctx, newCoordinatorLed(driver))
		Expect(api.Create(ctx, &v2alpha1.Membership{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "job"}, Spec: v2alpha1.MembershipSpec{JobUID: w.job(ctx).UID},
		})).To(Succeed())
		return w
	}

	It("resizes the Membership, from which the coordinator's list is made, after the coordinator's first request", func(ctx SpecContext) {
		w := begin(ctx, v2alpha1.RatioByOperator)
		Expect(w.reconcile(ctx)).To(Succeed())
		Expect(w.condition(ctx)).To(Equal("False WaitingForReports"))
		w.request(ctx, 2)
		first := w.members(ctx).Spec.Members

		w.pass(ctx, 16)
		Expect(w.collectors(ctx)).To(BeNumerically("~", 4, 1), "80 samples/s by collectors that make 20")
		Expect(w.condition(ctx)).To(Equal("True Following"))
		Expect(w.members(ctx).Spec.Members[:2]).To(Equal(first), "others keep their slots")
		Expect(w.members(ctx).Spec.CoordinatorInstance).To(Equal("uid/0"))
		Expect(w.events.Events).To(Receive(HavePrefix("Normal Autoscaled collector 2 -> ")))

		w.learner = 20
		w.pass(ctx, 40)
		Expect(w.collectors(ctx)).To(BeNumerically("~", 1, 1))
		Expect(w.members(ctx).Spec.Requests).NotTo(BeEmpty(), "removed pods drain by the record of their removal")
		Expect(w.job(ctx).Status.Autoscaling.Ratio.Replicas).To(HaveKeyWithValue("collector", w.collectors(ctx)))
	})

	It("never overwrites a change of the Membership that it has not seen", func(ctx SpecContext) {
		w := begin(ctx, v2alpha1.RatioByOperator)
		w.request(ctx, 2)
		w.restart(interceptor.Funcs{Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			w.request(ctx, 30)
			return next.Patch(ctx, object, patch, options...)
		}})
		for range 3 {
			w.clock.SetTime(w.clock.Now().Add(interval))
			w.report(ctx, 30, 2)
			if w.collectors(ctx) == 2 {
				Expect(w.reconcile(ctx)).To(Succeed())
			}
		}
		Expect(w.collectors(ctx)).To(BeEquivalentTo(30))
	})

	It("advises a coordinator that drives the job, and never writes the size", func(ctx SpecContext) {
		w := begin(ctx, v2alpha1.RatioByCoordinator)
		w.queue = 400
		w.request(ctx, 2)
		advice := func() int32 {
			GinkgoHelper()
			return w.job(ctx).Status.Autoscaling.Ratio.Replicas["collector"]
		}
		for range 12 {
			w.pass(ctx, 1)
			Expect(w.collectors(ctx)).To(BeEquivalentTo(2))
		}
		Expect(w.condition(ctx)).To(Equal("True Advising"))
		Expect(advice()).To(BeNumerically("~", 4, 1), "the advice holds until it is followed")
		Expect(w.events.Events).NotTo(Receive(ContainSubstring("Autoscaled")))

		w.request(ctx, advice())
		w.pass(ctx, 4)
		Expect(advice()).To(Equal(w.collectors(ctx)))
		Expect(w.job(ctx).Status.Autoscaling.Ratio.GrownAt).NotTo(BeNil(), "what the coordinator did counts as a resize")
	})
})

// These give a job another master.

func createAutoscaler(ctx context.Context, w *world) {
	GinkgoHelper()
	Expect(api.Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "collectors"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "diengine.opendilab.org/v2alpha1", Kind: "DIJob", Name: "job"},
			MaxReplicas:    8,
		},
	})).To(Succeed())
}

func nameQueue(ctx context.Context, w *world) {
	GinkgoHelper()
	// The schema refuses a rule with spec.scheduling.queue, and does not see labels.
	job := w.job(ctx)
	before := job.DeepCopy()
	job.Labels = map[string]string{queueing.LabelQueue: "team"}
	Expect(api.Patch(ctx, job, client.MergeFrom(before))).To(Succeed())
}

func makePreemptible(ctx context.Context, w *world) {
	GinkgoHelper()
	w.spec(ctx, func(spec *v2alpha1.DIJobSpec) {
		spec.Preemptible = true
		if spec.Elastic != nil {
			spec.Elastic.OnResize = v2alpha1.OnResizeContinue
		}
	})
}

func managers(job *v2alpha1.DIJob) []string {
	var found []string
	for i := range job.ManagedFields {
		found = append(found, job.ManagedFields[i].Manager)
	}
	return found
}
