// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/webhooks"
)

func TestAutoscaler(t *testing.T) {
	specs.Run(t, "Autoscaler on a real API server")
}

// api is the API server that all specs share. own writes to it as the operator.
var api, own client.WithWatch

var _ = BeforeSuite(func(ctx SpecContext) {
	environment := specs.Must(webhooks.StartAPIWithWebhooks(ctx))
	DeferCleanup(environment.Stop)
	api = specs.Must(testkit.NewClient(environment.Config))
	account := specs.Must(environment.As(testkit.Operator))
	own = specs.Must(client.NewWithWatch(account, client.Options{Scheme: api.Scheme(), Cache: &client.CacheOptions{Reader: api}}))
})

// world is a namespace with one job, its reports, and an autoscaler. Its clock moves by steps.
type world struct {
	namespace  string
	autoscaler *Reconciler
	events     *events.FakeRecorder
	clock      *clocktesting.FakePassiveClock
	// collector and learner are the capacities, in samples per second. queue is how many samples wait.
	collector, learner, queue float64
	rates                     map[string]*v2alpha1.RoleRates
	// reads is how many lists the autoscaler has read from the API server.
	reads int
}

func newWorld(ctx context.Context, job *v2alpha1.DIJob) *world {
	GinkgoHelper()
	w := &world{
		namespace: specs.Namespace(ctx, api), clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second).Add(time.Minute)), collector: 20, learner: 80, queue: 1600,
		rates: map[string]*v2alpha1.RoleRates{},
	}
	w.restart(interceptor.Funcs{})
	job.Namespace = w.namespace
	Expect(api.Create(ctx, job)).To(Succeed())
	w.status(ctx, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobRunning })
	return w
}

// restart replaces the autoscaler by one that remembers nothing.
func (w *world) restart(faults interceptor.Funcs) {
	GinkgoHelper()
	faults.List = listByOwner
	w.events = events.NewFakeRecorder(100)
	made := specs.Must(New(interceptor.NewClient(own, faults), interceptor.NewClient(own, interceptor.Funcs{List: w.count}), Options{
		Recorder: w.events, Registerer: prometheus.NewRegistry(), Clock: w.clock, Prometheus: w,
	}))
	w.autoscaler = made
}

// count counts what is read from the API server.
func (w *world) count(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	w.reads++
	return next.List(ctx, list, options...)
}

// Query answers queries of specs.
func (w *world) Query(_ context.Context, query string) (float64, error) {
	own := fmt.Sprintf(`namespace=%q}`, w.namespace)
	switch query {
	case "g{" + own:
		return w.collector, nil
	case "c{" + own:
		return w.learner, nil
	case `q{job="job",` + own:
		return w.queue, nil
	case "b{" + own:
		return 800, nil
	}
	return 0, fmt.Errorf("no value for %s", query)
}

// listByOwner selects pods as the cache's index does.
func listByOwner(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	if asked.FieldSelector == nil {
		return next.List(ctx, list, options...)
	}
	name, _ := asked.FieldSelector.RequiresExactMatch(controllers.OwnerIndex)
	if err := next.List(ctx, list, client.InNamespace(asked.Namespace)); err != nil {
		return err
	}
	if pods, ok := list.(*corev1.PodList); ok {
		var owned []corev1.Pod
		for i := range pods.Items {
			if names := controllers.OwnerName(&pods.Items[i]); len(names) == 1 && names[0] == name {
				owned = append(owned, pods.Items[i])
			}
		}
		pods.Items = owned
	}
	return nil
}

func (w *world) job(ctx context.Context) *v2alpha1.DIJob {
	GinkgoHelper()
	return specs.Get[v2alpha1.DIJob](ctx, api, w.namespace, "job")
}

// status changes the status of the job as another writer does.
func (w *world) status(ctx context.Context, change func(*v2alpha1.DIJobStatus)) {
	GinkgoHelper()
	job := w.job(ctx)
	before := job.DeepCopy()
	change(&job.Status)
	Expect(api.Status().Patch(ctx, job, client.MergeFrom(before))).To(Succeed())
}

// spec changes the spec of the job as a user does.
func (w *world) spec(ctx context.Context, change func(*v2alpha1.DIJobSpec)) {
	GinkgoHelper()
	job := w.job(ctx)
	before := job.DeepCopy()
	change(&job.Spec)
	Expect(api.Patch(ctx, job, client.MergeFrom(before))).To(Succeed())
}

// report reports what collectors and learner did in the last seconds.
func (w *world) report(ctx context.Context, seconds float64, collectors int32) {
	GinkgoHelper()
	add := func(role string, workers int32, capacity, share float64) *v2alpha1.RoleRates {
		rates := w.rates[role]
		if rates == nil {
			rates = &v2alpha1.RoleRates{Server: "s", Role: role}
			w.rates[role] = rates
		}
		worked := seconds * float64(workers)
		rates.UpdatedAt, rates.Reporters = metav1.NewMicroTime(w.clock.Now()), workers
		rates.ReportedMilliseconds += int64(1000 * worked)
		rates.BusyMilliseconds += int64(1000 * worked * share)
		rates.Samples += int64(worked * share * capacity)
		return rates
	}
	produced := float64(collectors) * w.collector
	busy := min(1, produced/w.learner)
	add("collector", collectors, w.collector, min(1, w.learner/produced))
	learner := add("learner", 1, w.learner, busy)
	learner.StarvedMilliseconds += int64(1000 * seconds * (1 - busy))
	learner.BatchSamples, learner.Queue, learner.QueueCapacity, learner.MaxStaleness = 800, int64(w.queue), 4000, 4
	w.status(ctx, func(status *v2alpha1.DIJobStatus) {
		status.Rates = []v2alpha1.RoleRates{*w.rates["collector"], *w.rates["learner"]}
	})
}

// run makes as many pods of collectors ready as the spec has.
func (w *world) run(ctx context.Context, task string) {
	GinkgoHelper()
	job := w.job(ctx)
	want := int32(0)
	for i := range job.Spec.Tasks {
		if job.Spec.Tasks[i].Name == task {
			want = ptr.Deref(job.Spec.Tasks[i].Replicas, 1)
		}
	}
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		want = w.collectors(ctx)
	}
	for i := range want {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.namespace, Name: fmt.Sprintf("job-%s-%d", task, i), Labels: map[string]string{"diengine/task-name": task, "replica-type": task},
				OwnerReferences: jobs.Owner(job),
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "di-container", Image: "di", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			}}}},
		}
		if client.IgnoreAlreadyExists(api.Create(ctx, pod)) == nil && pod.UID != "" {
			pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, pod.CreationTimestamp.DeepCopy()
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(pod.CreationTimestamp.Add(20 * time.Second)),
			}}
			Expect(api.Status().Update(ctx, pod)).To(Succeed())
		}
	}
}

// pass moves the clock by a number of reports and decisions.
func (w *world) pass(ctx context.Context, intervals int) {
	GinkgoHelper()
	for range intervals {
		w.clock.SetTime(w.clock.Now().Add(30 * time.Second))
		w.report(ctx, 30, w.collectors(ctx))
		w.run(ctx, "collector")
		Expect(w.reconcile(ctx)).To(Succeed())
	}
}

func (w *world) reconcile(ctx context.Context) error {
	_, err := w.autoscaler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: "job"}})
	return err
}

// collectors returns the count of the collectors in the spec, or in the Membership of a coordinator-led job.
func (w *world) collectors(ctx context.Context) int32 {
	GinkgoHelper()
	if w.job(ctx).Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return membership.Count(&w.members(ctx).Spec, v2alpha1.TaskTypeCollector)
	}
	return ptr.Deref(w.job(ctx).Spec.Elastic.Replicas, 0)
}

// condition returns the status and reason of condition Autoscaling.
func (w *world) condition(ctx context.Context) string {
	GinkgoHelper()
	found := conditions.Find(ptr.To(w.job(ctx).Status), v2alpha1.ConditionAutoscaling)
	if found == nil {
		return ""
	}
	return string(found.Status) + " " + found.Reason
}

// newJob returns a job with collectors that follow a learner.
func newJob(collectors int32) *v2alpha1.DIJob {
	template := jobs.Template()
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: v2alpha1.DIJobSpec{
			Tasks: []v2alpha1.Task{
				{Name: "learner", Type: v2alpha1.TaskTypeLearner, Replicas: ptr.To[int32](1), Template: template},
				{Name: "collector", Type: v2alpha1.TaskTypeCollector, Replicas: &collectors, Template: template},
			},
			Elastic:   &v2alpha1.Elastic{Task: "collector", Replicas: &collectors, MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To[int32](40)},
			Autoscale: &v2alpha1.Autoscale{Ratio: &v2alpha1.RatioRule{}},
		},
	}
}

// newCoordinatorLed returns a coordinator-led job whose collectors follow its learner.
func newCoordinatorLed(driver v2alpha1.RatioDriver) *v2alpha1.DIJob {
	job := newJob(0)
	template := job.Spec.Tasks[0].Template
	job.Spec.Lifecycle, job.Spec.Elastic, job.Spec.Tasks = v2alpha1.LifecycleCoordinatorLed, nil, nil
	for _, kind := range []v2alpha1.TaskType{v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		job.Spec.Tasks = append(job.Spec.Tasks, v2alpha1.Task{Name: string(kind), Type: kind, Template: template})
	}
	job.Spec.Autoscale.Ratio = &v2alpha1.RatioRule{
		Driver: driver, Producers: []v2alpha1.ProducerPool{{Task: "collector", MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To[int32](40)}},
	}
	return job
}

// members reads the Membership of the job.
func (w *world) members(ctx context.Context) *v2alpha1.Membership {
	GinkgoHelper()
	return specs.Get[v2alpha1.Membership](ctx, api, w.namespace, "job")
}

// request sets the number of collectors as di-server does for the coordinator.
func (w *world) request(ctx context.Context, collectors int32) {
	GinkgoHelper()
	list := w.members(ctx)
	list.Spec.CoordinatorInstance = "uid/0"
	resize := membership.Resize{Namespace: w.namespace, Job: "job", Replicas: map[v2alpha1.TaskType]int32{v2alpha1.TaskTypeCollector: collectors}, MaxMembers: 100, Random: rand.String}
	Expect(resize.Apply(&list.Spec, &list.Status, w.clock.Now())).To(Succeed())
	Expect(api.Update(ctx, list)).To(Succeed())
}
