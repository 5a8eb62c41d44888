// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// fixed is an optimizer that always makes the same plan, and records what it was told.
type fixed struct {
	plan optimizer.Plan
	last *optimizer.Job
}

func (f *fixed) Generate(_ context.Context, _ optimizer.Stage, job *optimizer.Job) (optimizer.Plan, error) {
	f.last = job
	return f.plan, nil
}

func (f *fixed) RecoverOOM(context.Context, []optimizer.Replica, *optimizer.Job) (optimizer.Plan, error) {
	return optimizer.Plan{}, nil
}

// metricsOf answers lists of PodMetrics with a usage of each pod. Others are passed on.
func metricsOf(cpu, memory string) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		metrics, isMetrics := list.(*unstructured.UnstructuredList)
		if !isMetrics || metrics.GroupVersionKind() != podMetrics() {
			return listByOwner(ctx, next, list, options...)
		}
		var asked client.ListOptions
		asked.ApplyOptions(options)
		var pods corev1.PodList
		if err := next.List(ctx, &pods, client.InNamespace(asked.Namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			metrics.Items = append(metrics.Items, unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": pods.Items[i].Name},
				"containers": []any{
					map[string]any{"name": "sidecar", "usage": map[string]any{"cpu": "1", "memory": "1Ki"}},
					map[string]any{"name": "di-container", "usage": map[string]any{"cpu": cpu, "memory": memory}},
				},
			}})
		}
		return nil
	}}
}

var _ = Describe("The optimizer of a job", func() {
	var w *world
	var by *fixed
	var optimizing *Optimizing

	begin := func(ctx SpecContext, rule v2alpha1.OptimizerRule, funcs interceptor.Funcs) {
		GinkgoHelper()
		job := newJob(2)
		job.Spec.Autoscale = &v2alpha1.Autoscale{Optimizer: &rule}
		w = newWorld(ctx, job)
		w.run(ctx, "collector")
		w.run(ctx, "learner")
		by = &fixed{plan: optimizer.Plan{
			Tasks: []optimizer.TaskPlan{{Name: "collector", Requests: optimizer.Resources{CPU: 2000, Memory: 1 << 30}}}, Reason: "collectors are slow",
		}}
		api := interceptor.NewClient(own, funcs)
		w.events = events.NewFakeRecorder(100)
		optimizing = newOptimizing(api, api, Options{Recorder: w.events, Local: by, Clock: w.autoscaler.clock})
	}
	decide := func(ctx SpecContext, times int) {
		GinkgoHelper()
		for range times {
			w.clock.SetTime(w.clock.Now().Add(interval))
			_, err := optimizing.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: "job"}})
			Expect(err).NotTo(HaveOccurred())
		}
	}
	plans := func(ctx SpecContext) []v2alpha1.ScalePlan {
		GinkgoHelper()
		list := specs.List[v2alpha1.ScalePlanList](ctx, api, client.InNamespace(w.namespace))
		return list.Items
	}

	It("is told the usage of each replica, and its plan becomes an object of the job", func(ctx SpecContext) {
		begin(ctx, v2alpha1.OptimizerRule{}, metricsOf("250m", "100Mi"))
		decide(ctx, 1)
		Expect(by.last.Samples).To(HaveLen(1))
		Expect(by.last.Samples[0].Usage).To(HaveLen(3))
		Expect(by.last.Samples[0].Usage[0].Used).To(Equal(optimizer.Resources{CPU: 250, Memory: 100 << 20}), "that of the main container")
		made := plans(ctx)
		Expect(made).To(HaveLen(1))
		Expect(made[0].Spec.Origin).To(Equal(v2alpha1.PlanOptimizer))
		Expect(made[0].OwnerReferences).To(HaveLen(1))
		status := w.job(ctx).Status.Autoscaling.Optimizer
		Expect(status.Plan).To(Equal(made[0].Name))
		Expect(status.Message).To(Equal("collectors are slow"))
		Expect(w.events.Events).To(Receive(HavePrefix("Normal Planned " + made[0].Name)))
	})

	It("never has a second plan while one is unfinished, and keeps a bounded number of samples", func(ctx SpecContext) {
		begin(ctx, v2alpha1.OptimizerRule{}, metricsOf("250m", "100Mi"))
		decide(ctx, keptSamples+5)
		Expect(plans(ctx)).To(HaveLen(1))
		Expect(by.last.Samples).To(HaveLen(keptSamples))
		Expect(by.last.Busy).To(BeTrue())
	})

	DescribeTable("leaves the number of replicas to another master", func(ctx SpecContext, prepare func(context.Context, *world), isMaster bool) {
		begin(ctx, v2alpha1.OptimizerRule{}, metricsOf("250m", "100Mi"))
		prepare(ctx, w)
		decide(ctx, 1)
		collector := by.last.Task("collector")
		Expect(collector.Min == collector.Replicas && collector.Max == collector.Replicas).To(Equal(isMaster))
		Expect(plans(ctx)).To(HaveLen(1), "resources have no other master")
	},
		Entry("not without one", func(context.Context, *world) {}, false),
		Entry("a HorizontalPodAutoscaler", createAutoscaler, true),
		Entry("a queue", nameQueue, true),
		Entry("the allocator", makePreemptible, true),
	)

	It("only says what it would do if the job says so", func(ctx SpecContext) {
		begin(ctx, v2alpha1.OptimizerRule{DryRun: true}, metricsOf("250m", "100Mi"))
		decide(ctx, 3)
		Expect(plans(ctx)).To(BeEmpty())
		Expect(w.job(ctx).Status.Autoscaling.Optimizer.Message).To(Equal("would plan: collectors are slow"))
	})

	It("refuses a plan outside the limits of the job", func(ctx SpecContext) {
		begin(ctx, v2alpha1.OptimizerRule{}, metricsOf("250m", "100Mi"))
		by.plan.Tasks[0].Name = "unknown"
		decide(ctx, 1)
		Expect(plans(ctx)).To(BeEmpty())
		Expect(w.job(ctx).Status.Autoscaling.Optimizer.Message).To(ContainSubstring(`the plan is refused: tasks[0].name is "unknown"`))
	})

	It("says that the cluster does not serve the metrics API", func(ctx SpecContext) {
		begin(ctx, v2alpha1.OptimizerRule{}, interceptor.Funcs{List: listByOwner})
		decide(ctx, 2)
		Expect(by.last).To(BeNil())
		Expect(w.job(ctx).Status.Autoscaling.Optimizer.Message).To(ContainSubstring("install metrics-server"))
	})
})
