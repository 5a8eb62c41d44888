// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tests that no transient fault reaches a deployed client of di-server as an error.
// It uses a real API server over a path that breaks, a real di-server over TCP, the real operator,
// and the example's strict client, which has the faults of deployed clients.
package faults

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

func TestFaults(t *testing.T) {
	specs.Run(t, "What passes reaches no client of di-server")
}

// cluster is the API server with the operator that all specs share.
type cluster struct {
	// account is the configuration of di-server. live has all permissions.
	account *rest.Config
	live    client.WithWatch
	// addresses counts the assigned pod addresses.
	addresses atomic.Int32
}

var shared cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	// These settings are those of the deployed program, except for the times.
	GinkgoT().Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	GinkgoT().Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	environment := specs.Must(testkit.StartAPI(ctx))
	DeferCleanup(environment.Stop)
	shared.live = specs.Must(testkit.NewClient(environment.Config))
	shared.account = specs.Must(environment.As(testkit.Server))
	operator := specs.Must(environment.As(testkit.Operator))

	mgr := specs.Must(ctrl.NewManager(operator, managerOptions(controllers.CacheOptions())))
	Expect(dijob.Setup(ctx, mgr, dijob.Options{Registerer: prometheus.NewRegistry(), Drain: time.Nanosecond})).To(Succeed())
	DeferCleanup(start(mgr))
})

func managerOptions(cached cache.Options) ctrl.Options {
	return ctrl.Options{
		Scheme:                 shared.live.Scheme(),
		Cache:                  cached,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	}
}

// start runs a manager and returns a function that stops it once.
func start(mgr ctrl.Manager) func() {
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(running) }()
	ended := false
	return func() {
		GinkgoHelper()
		stop()
		if !ended {
			ended = true
			Eventually(stopped).Should(Receive(BeNil()))
		}
	}
}

// running is a di-server that runs as in its program.
type running struct {
	*server.Server
	url string
	// stop stops the server as the termination of its pod does.
	stop func()
}

// newServer starts a di-server that reaches the API server at one address and listens on another.
// If the latter is empty, it uses a free one.
func newServer(ctx context.Context, api string, times server.Times) *running {
	GinkgoHelper()
	config := rest.CopyConfig(shared.account)
	config.Host = api
	if strings.HasPrefix(api, "http://") {
		config.TLSClientConfig = rest.TLSClientConfig{}
	}
	watches := store.NewWatches(GinkgoLogr, clock.RealClock{})
	config.Wrap(watches.Wrap)
	mgr := specs.Must(ctrl.NewManager(config, managerOptions(store.CacheOptions())))
	Expect(store.SetupIndexes(ctx, mgr.GetCache())).To(Succeed())
	address := freeAddress(ctx)
	served := specs.Must(server.New(server.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Cache: mgr.GetCache(), Watches: watches,
		Log: GinkgoLogr, Addresses: []string{address}, Times: times,
	}))
	Expect(mgr.Add(served)).To(Succeed())
	stop := start(mgr)
	DeferCleanup(stop)
	return &running{Server: served, url: "http://" + address, stop: stop}
}

func (r *running) waitReady() *running {
	GinkgoHelper()
	Eventually(func() error { return r.Ready(nil) }).Should(Succeed())
	return r
}

// newProxy returns an open proxy to an address for the duration of the spec.
func newProxy(ctx context.Context, to string) *proxy.Proxy {
	GinkgoHelper()
	made := specs.Must(proxy.New(ctx, "127.0.0.1:0", to))
	DeferCleanup(made.Close)
	return made
}

func freeAddress(ctx context.Context) string {
	GinkgoHelper()
	// No other program listens on this address, so the port is not taken before it is used.
	listener := specs.Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.8.0.1:0"))
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// caller is a job and the address of the pod that calls di-server for it.
type caller struct {
	key     client.ObjectKey
	address string
}

// submit submits a job in a new namespace.
func submit(ctx context.Context, spec v2alpha1.DIJobSpec) caller {
	GinkgoHelper()
	for i := range spec.Tasks {
		spec.Tasks[i].Template = jobs.Template()
	}
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: specs.Namespace(ctx, shared.live), Name: "job"}, Spec: spec}
	Expect(shared.live.Create(ctx, job)).To(Succeed())
	n := shared.addresses.Add(1)
	return caller{key: client.ObjectKeyFromObject(job), address: fmt.Sprintf("127.7.%d.%d", n/200, n%200+1)}
}

// runPod waits for the operator to create a pod and runs it at the caller's address, as a kubelet
// does.
func (c caller) runPod(ctx context.Context, name string) {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Eventually(func() error {
		return shared.live.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: name}, pod)
	}).Should(Succeed())
	pods.Run(pod, c.address)
	Expect(shared.live.Status().Update(ctx, pod)).To(Succeed())
}

// pods returns the number of the job's pods that are not terminating.
func (c caller) pods(ctx context.Context) int {
	GinkgoHelper()
	pods := specs.List[corev1.PodList](ctx, shared.live, client.InNamespace(c.key.Namespace))
	count := 0
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			count++
		}
	}
	return count
}

// http returns a client at the caller's address that adds headers. It opens a connection for each
// call, as deployed clients do.
func (c caller) http(headers []string) *http.Client {
	return &http.Client{Transport: withHeaders{&http.Transport{DialContext: proxy.DialFrom(c.address), DisableKeepAlives: true}, headers}}
}

// trainer is a coordinator-led job whose coordinator runs at its own address.
type trainer struct{ caller }

func newTrainer(ctx context.Context) *trainer {
	GinkgoHelper()
	return &trainer{submit(ctx, jobs.CoordinatorLed(jobs.Template()))}
}

// run runs the coordinator.
func (t *trainer) run(ctx context.Context) *trainer {
	GinkgoHelper()
	t.runPod(ctx, names.CoordinatorPod(t.key.Name))
	return t
}

// client returns a client of a server for the coordinator.
func (t *trainer) client(url string, headers ...string) *diserver.Client {
	GinkgoHelper()
	made := specs.Must(diserver.New(diserver.Config{
		URL: url, APIVersion: "/v1alpha1", Namespace: t.key.Namespace, Name: names.CoordinatorPod(t.key.Name),
		RetryWait: time.Second, HTTP: t.http(headers),
	}))
	return made
}

// withHeaders is a transport that adds headers.
type withHeaders struct {
	http.RoundTripper
	headers []string
}

func (w withHeaders) RoundTrip(request *http.Request) (*http.Response, error) {
	for i := 0; i+1 < len(w.headers); i += 2 {
		request.Header.Set(w.headers[i], w.headers[i+1])
	}
	return w.RoundTripper.RoundTrip(request)
}

// collect requests collectors and returns their pods.
func (t *trainer) collect(ctx context.Context, by *diserver.Client, collectors int) []string {
	GinkgoHelper()
	got := specs.Must(by.Create(ctx, diserver.Resources{Replicas: collectors, CPUs: "1"}, diserver.Resources{}))
	pods := make([]string, 0, collectors)
	for _, url := range got.Collectors {
		pod, _, _ := strings.Cut(url, ".")
		pods = append(pods, pod)
	}
	return pods
}

func (t *trainer) members(ctx context.Context) []v2alpha1.Member {
	GinkgoHelper()
	var list v2alpha1.Membership
	Expect(shared.live.Get(ctx, t.key, &list)).To(Succeed())
	return list.Spec.Members
}

// expect waits until the job has exactly the given number of members, the given number of them were
// reported failed, and the operator has created their pods.
func (t *trainer) expect(ctx context.Context, members, reports int) {
	GinkgoHelper()
	got := t.members(ctx)
	reported := int32(0)
	for i := range got {
		reported += got[i].FailureReports
	}
	Expect(got).To(HaveLen(members))
	Expect(reported).To(BeEquivalentTo(reports))
	Eventually(func() int { return t.pods(ctx) }).Should(Equal(members + 1))
}
