// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/coordinator"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/figures"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// polledJobs is the number of jobs, each with a polling coordinator, four collectors and a learner.
const polledJobs = 50

// BenchmarkPolls polls as deployed coordinators do: each from its own address, by a new connection for each GET. Identities
// are enforced. The reference is a gin handler that answers as many bytes without work.
func BenchmarkPolls(b *testing.B) {
	w := newPolled(b)
	callers := make([]coordinator.Caller, polledJobs)
	for i := range callers {
		callers[i] = w.makeJob(b, i)
	}
	served, err := server.New(server.Options{
		Client: w.cached, APIReader: w.live, Cache: w.cache, Log: logr.Discard(), Identity: auth.ModeEnforce,
		AggregatorConfig: types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "aggregator-config"},
		Times:            server.Times{Request: time.Minute, Call: time.Minute, Body: time.Minute, Profilings: time.Minute},
	})
	expect.NoError(b, err)
	address := listenFor(b, served.Handler())
	size := 0
	for i := range callers {
		// The first answer comes when the caches have the job.
		size = len(firstAnswer(b, address, &callers[i]))
	}
	b.Run("di-server", func(b *testing.B) { poll(b, address, callers) })
	gin.SetMode(gin.ReleaseMode)
	bare := gin.New()
	body := []byte(strings.Repeat("x", size))
	bare.GET("/v1alpha1/replicas", func(c *gin.Context) { c.Data(http.StatusOK, "application/json", body) })
	reference := listenFor(b, bare)
	b.Run("reference", func(b *testing.B) { poll(b, reference, callers) })
}

// poll polls by all coordinators in turn, several at a time.
func poll(b *testing.B, address string, callers []coordinator.Caller) {
	b.Helper()
	b.ReportAllocs()
	var number atomic.Int64
	took := make([]time.Duration, b.N)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			own := int(number.Add(1) - 1)
			began := time.Now()
			if _, err := coordinator.NewLine(address, &callers[own%len(callers)], false).Get(b.Context()); err != nil {
				b.Error(err)
				return
			}
			took[own] = time.Since(began)
		}
	})
	b.ReportMetric(float64(figures.Percentile(took, 99).Nanoseconds()), "p99-ns")
}

func listenFor(b *testing.B, handler http.Handler) string {
	b.Helper()
	listening := httptest.NewServer(handler)
	b.Cleanup(listening.Close)
	return listening.Listener.Addr().String()
}

func firstAnswer(b *testing.B, address string, caller *coordinator.Caller) []byte {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for {
		line := coordinator.NewLine(address, caller, false)
		urls, err := line.List(ctx)
		if err == nil && len(urls) > 0 {
			answer, err := line.Get(ctx)
			expect.NoError(b, err)
			return answer
		}
		if ctx.Err() != nil {
			b.Fatalf("%s gets %v: %v", caller.Pod, urls, err)
		}
	}
}

// polled is an API server with jobs as an operator has left them, and a cache of it.
type polled struct {
	live, cached client.Client
	cache        cache.Cache
}

func newPolled(b *testing.B) *polled {
	b.Helper()
	must := func(err error) {
		b.Helper()
		expect.NoError(b, err)
	}
	started, err := testkit.StartAPI(b.Context())
	must(err)
	b.Cleanup(func() { _ = started.Stop() })
	known := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(known))
	must(v2alpha1.AddToScheme(known))
	w := &polled{}
	w.live, err = client.New(started.Config, client.Options{Scheme: known})
	must(err)
	options := store.CacheOptions()
	options.Scheme = known
	w.cache, err = cache.New(started.Config, options)
	must(err)
	must(store.SetupIndexes(b.Context(), w.cache))
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- w.cache.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			b.Error(err)
		}
	})
	w.cached, err = client.New(started.Config, client.Options{Scheme: known, Cache: &client.CacheOptions{Reader: w.cache}})
	must(err)
	return w
}

// makeJob creates a job with the Membership and the running pods that an operator would create, and returns its
// coordinator.
func (w *polled) makeJob(b *testing.B, index int) coordinator.Caller {
	b.Helper()
	must := func(err error) {
		b.Helper()
		expect.NoError(b, err)
	}
	job := &v2alpha1.DIJob{}
	job.Namespace, job.Name = metav1.NamespaceDefault, fmt.Sprintf("cartpole-dqn-%04d", index)
	job.Spec.Lifecycle = v2alpha1.LifecycleCoordinatorLed
	for _, role := range []v2alpha1.TaskType{v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		one := v2alpha1.Task{Type: role, Name: string(role)}
		one.Template.Raw = []byte(template)
		job.Spec.Tasks = append(job.Spec.Tasks, one)
	}
	must(w.live.Create(b.Context(), job))
	list := &v2alpha1.Membership{Spec: v2alpha1.MembershipSpec{JobUID: job.UID}}
	list.Namespace, list.Name = job.Namespace, job.Name
	list.OwnerReferences = jobs.Owner(job)
	grow := membership.Grow{Job: job.Name, MaxMembers: membership.MaxMembers, Random: rand.String, Demands: []membership.Demand{
		{Task: v2alpha1.TaskTypeCollector, Replicas: 4}, {Task: v2alpha1.TaskTypeLearner, Replicas: 1},
	}}
	_, err := grow.Apply(&list.Spec, &list.Status)
	must(err)
	must(w.live.Create(b.Context(), list))
	builder := workload.NewBuilder(job, workload.Settings{})
	pod, err := builder.Coordinator()
	must(err)
	pods := []*corev1.Pod{pod}
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		pod, err := builder.Replica(member, member.PodName)
		must(err)
		pods = append(pods, pod)
		list.Status.Slots = append(list.Status.Slots, v2alpha1.SlotStatus{Slot: member.Slot, ObservedPod: member.PodName, Phase: corev1.PodRunning})
	}
	for i, pod := range pods {
		must(w.live.Create(b.Context(), pod))
		address := coordinator.Address(index, i)
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		must(w.live.Status().Update(b.Context(), pod))
	}
	must(w.live.Status().Update(b.Context(), list))
	return coordinator.Caller{From: coordinator.Address(index, 0), Namespace: job.Namespace, Pod: names.CoordinatorPod(job.Name)}
}
