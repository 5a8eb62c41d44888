// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/usage"
	"opendilab.org/di-orchestrator/history/watch"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podmetrics"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/test/testkit"
)

var environment *testkit.API

func TestMain(m *testing.M) { os.Exit(testkit.RunOnAPI(m, &environment)) }

// fixture has a reader of a real API server. What serves metrics.k8s.io is not part of it.
type fixture struct {
	*WithT
	t         *testing.T
	api       client.WithWatch
	namespace string
	clock     *testingclock.FakeClock

	mutex sync.Mutex
	log   strings.Builder
	// lists are those of PodMetrics, and used is what each pod uses; nil without the API.
	lists int
	used  map[string]podmetrics.Used
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t, clock: testingclock.NewFakeClock(time.Now()), used: map[string]podmetrics.Used{}}
	f.SetDefaultEventuallyTimeout(testkit.Patience)
	var err error
	f.api, err = client.NewWithWatch(environment.Config, client.Options{})
	f.Expect(err).NotTo(HaveOccurred())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "usage-"}}
	f.Expect(f.api.Create(t.Context(), namespace)).To(Succeed())
	f.namespace = namespace.Name
	return f
}

// start starts a reader of one namespace.
func (f *fixture) start() *usage.Reader {
	f.t.Helper()
	watched, err := scope.New([]string{f.namespace}, types.NamespacedName{})
	f.Expect(err).NotTo(HaveOccurred())
	log := funcr.New(func(_, line string) {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		f.log.WriteString(line + "\n")
	}, funcr.Options{})
	reader := &usage.Reader{Live: interceptor.NewClient(f.api, interceptor.Funcs{List: f.list}), Cached: f.api, Namespaces: watched, Clock: f.clock, Log: log}
	ctx, cancel := context.WithCancel(f.t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- reader.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		f.Eventually(stopped, testkit.Patience).Should(Receive(BeNil()))
	})
	f.Eventually(f.clock.HasWaiters).Should(BeTrue())
	return reader
}

// round waits for the next round.
func (f *fixture) round() {
	f.t.Helper()
	f.clock.Step(30 * time.Second)
	f.Eventually(f.clock.HasWaiters).Should(BeTrue())
}

// list answers lists of PodMetrics by the labels of pods, as metrics-server does.
func (f *fixture) list(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	metrics, isMetrics := list.(*unstructured.UnstructuredList)
	if !isMetrics || metrics.GroupVersionKind() != podmetrics.Kind() {
		return next.List(ctx, list, options...)
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.lists++
	if f.used == nil {
		return next.List(ctx, list, options...)
	}
	var pods corev1.PodList
	if err := next.List(ctx, &pods, options...); err != nil {
		return err
	}
	for i := range pods.Items {
		used := f.used[pods.Items[i].Name]
		metrics.Items = append(metrics.Items, unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": f.namespace, "name": pods.Items[i].Name},
			"containers": []any{
				map[string]any{"name": "sidecar", "usage": map[string]any{"cpu": "3", "memory": "1Ki"}},
				map[string]any{"name": "main", "usage": map[string]any{"cpu": fmt.Sprintf("%dm", used.CPU), "memory": strconv.FormatInt(used.Memory, 10)}},
			},
		}})
	}
	return nil
}

func (f *fixture) use(pod string, cpu, memory int64) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.used[pod] = podmetrics.Used{CPU: cpu, Memory: memory}
}

func (f *fixture) pod(name, job string, labels map[string]string) {
	f.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Labels: labels}}
	if job != "" {
		owner := metav1.NewControllerRef(&metav1.ObjectMeta{Name: job, UID: types.UID(job + "-uid")}, v2alpha1.GroupVersion.WithKind("DIJob"))
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "ding:2"}}
	f.Expect(f.api.Create(f.t.Context(), pod)).To(Succeed())
}

func TestTheUsageOfTheReplicasOfEachTaskIsReadByOneListForEachLifecycle(t *testing.T) {
	f := setUp(t)
	worker := map[string]string{names.LabelJob: "ppo", names.LabelTaskName: "worker"}
	f.pod("ppo-worker-0", "ppo", worker)
	f.pod("ppo-worker-1", "ppo", worker)
	f.pod("dqn-collector", "dqn", map[string]string{names.LabelDIJobName: "dqn", names.LabelReplicaType: "collector"})
	f.pod("stranger", "", worker)
	f.use("ppo-worker-0", 500, 1<<30)
	f.use("ppo-worker-1", 700, 1<<20)
	f.use("dqn-collector", 100, 1<<25)
	reader := f.start()
	f.use("ppo-worker-1", 600, 2<<30)
	f.round()
	f.Expect(reader.Take()).To(Equal(map[types.NamespacedName]watch.Used{
		{Namespace: f.namespace, Name: "ppo"}: {Job: "ppo-uid", Tasks: map[string]record.Peak{"worker": {CPU: 700, Memory: 2 << 30}}},
		{Namespace: f.namespace, Name: "dqn"}: {Job: "dqn-uid", Tasks: map[string]record.Peak{"collector": {CPU: 100, Memory: 1 << 25}}},
	}))
	f.Expect(reader.Take()).To(BeEmpty())
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.Expect(f.lists).To(Equal(4))
	f.Expect(f.log.String()).To(BeEmpty())
}

func TestAClusterWithoutTheMetricsAPIIsToldOnce(t *testing.T) {
	f := setUp(t)
	f.used = nil
	reader := f.start()
	f.round()
	f.Expect(reader.Take()).To(BeEmpty())
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.Expect(strings.Count(f.log.String(), "install metrics-server")).To(Equal(1), f.log.String())
}
