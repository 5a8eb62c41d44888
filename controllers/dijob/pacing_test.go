// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/assume"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// requests counts a client's requests to the API server by verb and resource.
type requests struct {
	mutex  sync.Mutex
	counts map[string]int
}

// wrap counts the requests of one namespace.
func (r *requests) wrap(namespace string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if _, path, found := strings.Cut(request.URL.Path, "/namespaces/"+namespace+"/"); found {
				r.count(request.Method, path)
			}
			return next.RoundTrip(request)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// count counts a request for resource[/name[/subresource]].
func (r *requests) count(method, path string) {
	parts := strings.Split(path, "/")
	what := parts[0]
	if len(parts) > 2 {
		what += "/" + parts[2]
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.counts[method+" "+what]++
}

// but returns the counts of all requests except those for Events and the resources left.
func (r *requests) but(left ...string) map[string]int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	counts := map[string]int{}
	for what, count := range r.counts {
		if !strings.HasSuffix(what, " events") {
			counts[what] = count
		}
	}
	for _, what := range left {
		delete(counts, what)
	}
	return counts
}

func (r *requests) total() int {
	total := 0
	for _, count := range r.but() {
		total += count
	}
	return total
}

// startCounted runs the operator as the program does, and counts its requests.
func (s *space) startCounted(ctx context.Context, limit func(*rest.Config), namespaces ...string) *requests {
	counted := &requests{counts: map[string]int{}}
	config := rest.CopyConfig(shared.account)
	config.Wrap(counted.wrap(s.name))
	limit(config)
	s.startManagerWith(ctx, config, namespaces...)
	return counted
}

var _ = Describe("What the operator asks the API server for", func() {
	unlimited := func(*rest.Config) {}

	It("is bounded for a worker-led job until it runs, and nothing after that", func(ctx SpecContext) {
		const pods = 70 // The creation takes more than one reconcile.
		s := newSpace(ctx)
		asked := s.startCounted(ctx, unlimited)
		s.submitMany(ctx, pods)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(pods))
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))

		Expect(asked.but("PATCH dijobs/status")).To(Equal(map[string]int{"POST pods": pods, "POST services": 1, "POST configmaps": 1}))
		// The statuses are Pending, Starting and Running, and at most one with new counts for each second
		// in between. The seconds are counted after the requests.
		job, total := s.job(ctx), asked.total()
		lasted := int(time.Since(job.CreationTimestamp.Time)/lifecycle.CountsInterval) + 1
		Expect(total).To(BeNumerically("<=", pods+1+1+4+lasted))

		By("looking at it again")
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(s.job(ctx).Status.ReadyReplicas).To(BeEquivalentTo(pods))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		before := asked.total()
		job = s.job(ctx)
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, "seen", "now")
		Expect(shared.api.Update(ctx, job)).To(Succeed())
		pod := s.pods(ctx)[0]
		pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
		Expect(shared.api.Status().Update(ctx, &pod)).To(Succeed())
		Consistently(asked.total).WithTimeout(2 * lifecycle.CountsInterval).Should(Equal(before))
	})

	It("is bounded for a coordinator-led job until it runs", func(ctx SpecContext) {
		s := newSpace(ctx)
		asked := s.startCounted(ctx, unlimited)
		s.submitLed(ctx, "")
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(1))
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))
		Expect(asked.but("PATCH dijobs/status", "PUT memberships/status")).To(Equal(map[string]int{
			"POST pods": 1, "POST services": 1, "POST memberships": 1,
		}))
		Expect(asked.total()).To(BeNumerically("<=", 1+1+4))
	})

	It("has limits of its own for each kind, so that pods hold up no Events", func(ctx SpecContext) {
		const pods = 12
		s := newSpace(ctx)
		s.startCounted(ctx, func(config *rest.Config) {
			// The rate is so low that only the burst matters, which the pods use up.
			config.QPS, config.Burst = 0.0001, pods
		}, s.name)
		s.submitMany(ctx, pods)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(pods))
		Eventually(s.reasons).WithContext(ctx).WithTimeout(patience).Should(ContainElement("SuccessfulCreate"))
	})
})

// submitMany submits a worker-led job of the given number of collectors.
func (s *space) submitMany(ctx context.Context, pods int32) {
	s.submit(ctx, v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(pods), Template: podTemplate()},
	}})
}

var _ = Describe("A job of more pods than are created in one go", func() {
	It("is not tried over and over where all names are taken", func(ctx SpecContext) {
		const pods = 65
		s := newSpace(ctx)
		for i := range pods {
			Expect(shared.api.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: fmt.Sprintf("job-collector-%d", i)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "own", Image: "image"}}},
			})).To(Succeed())
		}
		s.submitMany(ctx, pods)
		result := specs.Must(s.pass(ctx))
		Expect(result.RequeueAfter).To(Equal(time.Millisecond), "the service was created")
		result = specs.Must(s.pass(ctx))
		Expect(result.RequeueAfter).To(BeNumerically("~", lifecycle.ConflictDelay, lifecycle.ConflictDelay/10))
	})
})

var _ = Describe("A job whose reconcile fails", func() {
	// refusing returns an operator whose API server is too busy for one of the job's pods.
	refusing := func(s *space, refused string) *Reconciler {
		return s.newOperator(onCreate(func(object client.Object) error {
			if object.GetName() == refused {
				return apierrors.NewTooManyRequests("busy", 1)
			}
			return nil
		}))
	}

	It("has counts that were held back written in time", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.operator = refusing(s, "job-learner-0")
		now := s.clock()
		s.submitWorkers(ctx, 0)
		for range 3 {
			Expect(apierrors.IsTooManyRequests(s.reconcile(ctx))).To(BeTrue())
		}
		s.run(ctx)
		*now = now.Add(lifecycle.CountsInterval / 4)
		Expect(apierrors.IsTooManyRequests(s.reconcile(ctx))).To(BeTrue())
		Expect(s.job(ctx).Status.ReadyReplicas).To(BeZero())

		limiter, request := s.operator.retries(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: s.name, Name: "job"}}
		Expect(limiter.When(request)).To(Equal(firstRetry))
		for range 20 {
			limiter.When(request)
		}
		delay := limiter.When(request)
		Expect(delay).To(Equal(lifecycle.CountsInterval * 3 / 4))
		*now = now.Add(delay)
		Expect(apierrors.IsTooManyRequests(s.reconcile(ctx))).To(BeTrue())
		Expect(s.job(ctx).Status.ReadyReplicas).To(BeEquivalentTo(2))
		Expect(limiter.When(request)).To(BeNumerically(">", lifecycle.CountsInterval), "nothing is held back any more")
	})
})

var _ = Describe("A job whose caches are behind", func() {
	It("learns of a pod by a watch while they are read, and creates it once", func(ctx SpecContext) {
		s := newSpace(ctx)
		attempts := 0
		faults := onCreate(func(object client.Object) error {
			if _, isPod := object.(*corev1.Pod); isPod {
				attempts++
			}
			return nil
		})
		faults.List = staleList(func(pods *corev1.PodList) {
			for i := range pods.Items {
				s.operator.assumed.owned.Confirm(client.ObjectKey{Namespace: s.name, Name: "job"}, &pods.Items[i])
			}
			pods.Items = nil
		}).List
		s.operator = s.newOperator(faults)
		s.submitMany(ctx, 1)
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(attempts).To(Equal(1))
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobStarting))
	})

	It("keeps the pods that its caches lack after a restart", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitMany(ctx, 2)
		Expect(s.settle(ctx)).To(Succeed())
		s.operator = s.newOperator(staleList(func(pods *corev1.PodList) { pods.Items = nil }))
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.created).To(HaveEach(1))
		Expect(s.conditions(ctx)).NotTo(HaveKey(v2alpha1.ConditionNameConflict))
	})
})

func workerPod(name, told string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "space", Name: name, UID: types.UID(name), ResourceVersion: "5",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v2alpha1.GroupVersion.String(), Kind: controllers.JobKind, Name: "job", UID: "job-uid", Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "di-container", Env: []corev1.EnvVar{{Name: "DI_NODES", Value: strings.Clone(told)}},
		}}},
	}
}

// recordingQueue records the added items and their delays.
type recordingQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	after []time.Duration
}

func (q *recordingQueue) Add(job reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, job)
}

func (q *recordingQueue) AddWithOpts(options priorityqueue.AddOpts, jobs ...reconcile.Request) {
	for range jobs {
		q.after = append(q.after, options.After)
	}
}

func TestEventsOfManyPodsAreDebounced(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pods   int
		object client.Object
		want   time.Duration
	}{
		"of a new job":        {0, workerPod("pod", ""), 0},
		"of a small job":      {10, workerPod("pod", ""), time.Millisecond},
		"of a large job":      {1000, workerPod("pod", ""), 100 * time.Millisecond},
		"of a huge job":       {100000, workerPod("pod", ""), maxDebounce},
		"of what is no pod":   {1000, &v2alpha1.Membership{ObjectMeta: workerPod("job", "").ObjectMeta}, 0},
		"of a job's services": {1000, &corev1.Service{ObjectMeta: workerPod("job", "").ObjectMeta}, 0},
	}
	job := types.NamespacedName{Namespace: "space", Name: "job"}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var states jobStates
			states.update(job, func(state *jobState) { state.pods = tc.pods })
			queue := &recordingQueue{}
			enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: job}}
			})
			owned := &ownedHandler{EventHandler: enqueue, assumed: &assume.Cache{}, states: &states}
			owned.Create(t.Context(), event.CreateEvent{Object: tc.object}, queue)
			owned.Update(t.Context(), event.UpdateEvent{ObjectOld: tc.object, ObjectNew: tc.object}, queue)
			owned.Delete(t.Context(), event.DeleteEvent{Object: tc.object}, queue)
			if len(queue.after) == 0 {
				t.Fatal("nothing is enqueued")
			}
			for _, after := range queue.after {
				if after != tc.want {
					t.Errorf("waits for %v, want %v", after, tc.want)
				}
			}
		})
	}
}

func TestAssumedObjectsCompleteWhatTheCachesHave(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "job", UID: "job-uid", ResourceVersion: "3"}}
	recreated := job.DeepCopy()
	recreated.UID = "other-uid"
	meta := func(name string) metav1.ObjectMeta { return workerPod(name, "").ObjectMeta }
	tests := map[string]struct {
		observed lifecycle.Observed
		want     int
	}{
		"the caches have none":             {lifecycle.Observed{Job: job}, 1},
		"the caches have the pod":          {lifecycle.Observed{Job: job, Pods: []*corev1.Pod{workerPod("pod", "")}}, 1},
		"another job has the name by then": {lifecycle.Observed{Job: recreated}, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects assumedObjects
			for _, object := range []client.Object{
				job.DeepCopy(), workerPod("pod", ""), &corev1.Service{ObjectMeta: meta("service")}, &corev1.ConfigMap{ObjectMeta: meta("nodes")},
				&v2alpha1.Membership{ObjectMeta: meta("job")},
			} {
				objects.add(job, object, now)
			}
			observed := tc.observed
			observed.Now = now
			objects.complete(&observed, objects.owned.List(client.ObjectKeyFromObject(job)))
			lists := 0
			if observed.Membership != nil {
				lists++
			}
			for kind, got := range map[string]int{
				"pods": len(observed.Pods), "services": len(observed.Services), "ConfigMaps": len(observed.ConfigMaps), "Memberships": lists,
			} {
				if got != tc.want {
					t.Errorf("%d %s are observed, want %d", got, kind, tc.want)
				}
			}
		})
	}
}
