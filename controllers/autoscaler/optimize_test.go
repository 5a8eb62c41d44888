// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/internal/podmetrics"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// fixed is an optimizer that always makes the same plan, and records what it was told.
type fixed struct {
	plan, recovery optimizer.Plan
	last           *optimizer.Job
	killed         [][]optimizer.Replica
}

func (f *fixed) Generate(_ context.Context, _ optimizer.Stage, job *optimizer.Job) (optimizer.Plan, error) {
	f.last = job
	return f.plan, nil
}

func (f *fixed) RecoverOOM(_ context.Context, killed []optimizer.Replica, job *optimizer.Job) (optimizer.Plan, error) {
	f.last, f.killed = job, append(f.killed, killed)
	return f.recovery, nil
}

// metricsOf answers lists of PodMetrics with a usage of each pod. Others are passed on.
func metricsOf(cpu, memory string) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		metrics, isMetrics := list.(*unstructured.UnstructuredList)
		if !isMetrics || metrics.GroupVersionKind() != podmetrics.Kind() {
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
		decide(ctx, optimizer.MaxSamples+5)
		Expect(plans(ctx)).To(HaveLen(1))
		Expect(by.last.Samples).To(HaveLen(optimizer.MaxSamples))
		Expect(by.last.Busy).To(BeTrue())
	})

	It("gives back what a job never used, after ten minutes in one size", func(ctx SpecContext) {
		begin(ctx, v2alpha1.OptimizerRule{}, metricsOf("4m", "8Mi"))
		optimizing.local = local.New(local.Defaults())
		decide(ctx, 20)
		Expect(plans(ctx)).To(BeEmpty())
		Expect(w.job(ctx).Status.Autoscaling.Optimizer.Message).To(Equal("waiting: the present size has not been observed for 10m0s"))
		decide(ctx, 1)
		made := plans(ctx)
		Expect(made).To(HaveLen(1))
		Expect(made[0].Spec.Reason).To(HavePrefix("OverRequested: "))
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

	// kill lets the operator count that a pod was out of memory.
	kill := func(ctx SpecContext, pod string, phase v2alpha1.Phase) {
		GinkgoHelper()
		at := metav1.NewTime(w.clock.Now())
		w.status(ctx, func(status *v2alpha1.DIJobStatus) {
			status.Phase, status.LastFailure = phase, &v2alpha1.LastFailure{Pod: pod, Reason: v2alpha1.ReasonOOMKilled, Time: &at}
		})
	}
	finish := func(ctx SpecContext) {
		GinkgoHelper()
		for _, plan := range plans(ctx) {
			plan.Status.Phase = v2alpha1.PlanSucceeded
			Expect(api.Status().Update(ctx, &plan)).To(Succeed())
		}
	}

	It("is told once of each replica that was killed out of memory, also while the job restarts", func(ctx SpecContext) {
		begin(ctx, v2alpha1.OptimizerRule{}, metricsOf("250m", "100Mi"))
		by.plan = optimizer.Plan{Reason: "nothing"}
		by.recovery = optimizer.Plan{Migrate: []optimizer.Migration{{Pod: "job-collector-1", Requests: optimizer.Resources{Memory: 1 << 30}}}, Reason: "OutOfMemory: more"}
		decide(ctx, 1)
		kill(ctx, "job-collector-1", v2alpha1.JobRestarting)
		decide(ctx, 3)
		Expect(by.killed).To(HaveLen(1))
		Expect(by.killed[0]).To(ConsistOf(HaveField("Pod", "job-collector-1")))
		made := plans(ctx)
		Expect(made).To(HaveLen(1))
		Expect(made[0].Spec.Migrate).To(ConsistOf(HaveField("Pod", "job-collector-1")))
		Expect(w.job(ctx).Status.Autoscaling.Optimizer.Message).To(Equal("OutOfMemory: more"))

		finish(ctx)
		kill(ctx, "job-collector-1", v2alpha1.JobRunning)
		decide(ctx, 3)
		Expect(by.killed).To(HaveLen(2))
		Expect(plans(ctx)).To(HaveLen(2))
	})

	It("learns from a kill that the replica has used all that it had", func(ctx SpecContext) {
		begin(ctx, v2alpha1.OptimizerRule{}, metricsOf("250m", "100Mi"))
		w.spec(ctx, func(spec *v2alpha1.DIJobSpec) {
			spec.Tasks[1].Template = jobs.Raw(`{"spec": {"containers": [{"name": "di-container", "image": "di",
				"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}}]}}`)
		})
		Expect(api.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(w.namespace), client.GracePeriodSeconds(0))).To(Succeed())
		kill(ctx, "job-collector-1", v2alpha1.JobRestarting)
		decide(ctx, 1)
		task := by.last.Task("collector")
		Expect(task.Template).To(Equal(optimizer.Resources{CPU: 1000, Memory: 1 << 30}))
		Expect(task.Pods).To(ConsistOf(optimizer.Replica{Task: "collector", Index: 1, Pod: "job-collector-1", Requests: task.Template}))
		Expect(task.Peak.Memory).To(BeEquivalentTo(1 << 30))
	})

	DescribeTable("leaves a kill alone", func(ctx SpecContext, rule v2alpha1.OptimizerRule, change func(*v2alpha1.DIJobSpec), age time.Duration, reason string) {
		begin(ctx, rule, metricsOf("250m", "100Mi"))
		by.plan = optimizer.Plan{Reason: "nothing"}
		by.recovery = optimizer.Plan{Migrate: []optimizer.Migration{{Pod: "job-collector-1", Requests: optimizer.Resources{Memory: 1 << 30}}}, Reason: "OutOfMemory: more"}
		w.spec(ctx, change)
		kill(ctx, "job-collector-1", v2alpha1.JobRunning)
		w.status(ctx, func(status *v2alpha1.DIJobStatus) { status.LastFailure.Reason = reason })
		w.clock.SetTime(w.clock.Now().Add(age))
		decide(ctx, 2)
		Expect(plans(ctx)).To(BeEmpty())
	},
		Entry("with spec.autoscale.memory, which gives memory itself", v2alpha1.OptimizerRule{}, func(spec *v2alpha1.DIJobSpec) {
			spec.Autoscale.Memory = &v2alpha1.MemoryRule{}
		}, time.Duration(0), v2alpha1.ReasonOOMKilled),
		Entry("of old times", v2alpha1.OptimizerRule{}, func(*v2alpha1.DIJobSpec) {}, time.Hour, v2alpha1.ReasonOOMKilled),
		Entry("for another reason", v2alpha1.OptimizerRule{}, func(*v2alpha1.DIJobSpec) {}, time.Duration(0), v2alpha1.ReasonError),
		Entry("of a suspended job", v2alpha1.OptimizerRule{}, func(spec *v2alpha1.DIJobSpec) { spec.Suspend = ptr.To(true) }, time.Duration(0), v2alpha1.ReasonOOMKilled),
		Entry("in a dry run", v2alpha1.OptimizerRule{DryRun: true}, func(*v2alpha1.DIJobSpec) {}, time.Duration(0), v2alpha1.ReasonOOMKilled),
	)
})
