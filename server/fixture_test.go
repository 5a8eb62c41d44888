// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// trainer is the coordinator-led job of the specs.
const trainer = "cartpole-dqn"

// template is a pod template that serves on 22270.
const template = `{"spec":{"containers":[{"name":"di-container","image":"di","ports":[{"name":"di-port","containerPort":22270}]}]}}`

// newServer returns the URL of a server that uses the client.
func newServer(through client.Client, changes ...func(*server.Options)) string {
	GinkgoHelper()
	options := server.Options{
		Client:           through,
		APIReader:        apiReader(through),
		Cache:            api.cache,
		Log:              GinkgoLogr,
		Identity:         auth.ModeDisabled,
		AggregatorConfig: types.NamespacedName{Namespace: "default", Name: "aggregator-config"},
		// The times are long, so that no request fails on a slow machine. A request that cannot succeed
		// ends by endTime.
		Times: server.Times{Request: testkit.Patience, Call: testkit.Patience, Body: testkit.Patience, Profilings: time.Nanosecond},
	}
	for _, change := range changes {
		change(&options)
	}
	served := specs.Must(server.New(options))
	return listen(ending(served.Handler()))
}

// started is a server with its addresses. The TLS address is the last.
type started struct {
	*server.Server
	addresses []string
	stop      func()
	stopped   chan error
}

// start runs a server without authentication until the spec ends.
func start(ctx context.Context, options server.Options) *started {
	GinkgoHelper()
	if options.Addresses == nil {
		options.Addresses = []string{"127.0.0.1:0"}
	}
	addresses := make(chan string, len(options.Addresses)+1)
	options.Client, options.APIReader, options.Cache, options.Identity = api.cached, api.own, api.cache, auth.ModeDisabled
	options.Log = funcr.New(func(_, line string) {
		if found := regexp.MustCompile(`"address"="([^"]+)"`).FindStringSubmatch(line); found != nil {
			addresses <- found[1]
		}
	}, funcr.Options{})
	served := specs.Must(server.New(options))
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &started{Server: served, stop: stop, stopped: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		s.stopped <- served.Start(running)
		close(ended)
	}()
	DeferCleanup(func() {
		stop()
		if options.DrainDelay == 0 {
			Eventually(ended).Should(BeClosed())
		}
	})
	all := len(options.Addresses)
	if options.TLSAddress != "" {
		all++
	}
	for range all {
		var address string
		Eventually(addresses).Should(Receive(&address))
		s.addresses = append(s.addresses, address)
	}
	return s
}

// requestTime is the deadline of one request.
type requestTime struct{ end context.CancelFunc }

type requestTimeKey struct{}

// ending makes the requests of a handler end when a client of a spec calls endTime.
func ending(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		ctx, end := context.WithCancel(request.Context())
		defer end()
		ctx = context.WithValue(ctx, requestTimeKey{}, &requestTime{end: end})
		handler.ServeHTTP(writer, request.WithContext(ctx))
	})
}

// endTime ends the request that a call belongs to, as its deadline would. A client of a spec calls it
// where the request can make no further progress. A real deadline could end a request earlier on a slow
// machine.
func endTime(ctx context.Context) {
	if time, ok := ctx.Value(requestTimeKey{}).(*requestTime); ok {
		time.end()
	}
}

// within returns an option that limits the time of requests.
func within(limit time.Duration) func(*server.Options) {
	return func(options *server.Options) { options.Times.Request = limit }
}

// apiReader returns the live reader of a client. The reader of a mortalClient crashes with it.
func apiReader(through client.Client) client.Reader {
	if own, ok := through.(interface{ reader() client.Reader }); ok {
		return own.reader()
	}
	return api.own
}

// newJob creates a job as a user does.
func newJob(ctx context.Context, namespace, name string, spec v2alpha1.DIJobSpec) *v2alpha1.DIJob {
	GinkgoHelper()
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	Expect(api.live.Create(ctx, job)).To(Succeed())
	return job
}

func coordinatorLed() v2alpha1.DIJobSpec { return jobs.CoordinatorLed(jobs.Serving()) }

// newTrainer creates a coordinator-led job with the objects that the operator creates for it: its empty
// Membership and its coordinator.
func newTrainer(ctx context.Context, namespace string) *v2alpha1.DIJob {
	GinkgoHelper()
	job := newJob(ctx, namespace, trainer, coordinatorLed())
	newMembership(ctx, job)
	newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
	return job
}

func newMembership(ctx context.Context, job *v2alpha1.DIJob) {
	GinkgoHelper()
	Expect(api.live.Create(ctx, jobs.Membership(job))).To(Succeed())
}

// newPod creates a pod of a coordinator-led job as the operator does.
func newPod(ctx context.Context, job *v2alpha1.DIJob, name string, role names.ReplicaType) *corev1.Pod {
	GinkgoHelper()
	return createPod(ctx, job, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: names.ReplicaLabels(job.Name, role, name),
	}})
}

func createPod(ctx context.Context, job *v2alpha1.DIJob, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	pod.Namespace = job.Namespace
	pod.OwnerReferences = jobs.Owner(job)
	if pod.Spec.Containers == nil {
		pod.Spec.Containers = []corev1.Container{{
			Name:  names.Container,
			Image: "di",
			Ports: []corev1.ContainerPort{{Name: names.Port, ContainerPort: 22270}},
		}}
	}
	Expect(api.live.Create(ctx, pod)).To(Succeed())
	return pod
}

func podNamed(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// membershipOf reads a job's Membership live.
func membershipOf(ctx context.Context, job *v2alpha1.DIJob) *v2alpha1.Membership {
	GinkgoHelper()
	var list v2alpha1.Membership
	Expect(api.live.Get(ctx, client.ObjectKeyFromObject(job), &list)).To(Succeed())
	return &list
}

// cacheKnows waits until the cache has the API server's version of an object.
func cacheKnows(ctx context.Context, object client.Object) {
	GinkgoHelper()
	key := client.ObjectKeyFromObject(object)
	Expect(api.live.Get(ctx, key, object)).To(Succeed())
	version := object.GetResourceVersion()
	Eventually(func() string {
		if err := api.cached.Get(ctx, key, object); err != nil {
			return err.Error()
		}
		return object.GetResourceVersion()
	}).Should(Equal(version))
}

// call sends a request as deployed clients do: without Content-Type and credentials.
func call(ctx context.Context, method, url, body string, headers ...string) (int, string) {
	GinkgoHelper()
	status, answer, err := tryCall(ctx, method, url, body, headers...)
	Expect(err).NotTo(HaveOccurred())
	return status, answer
}

func tryCall(ctx context.Context, method, url, body string, headers ...string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", err
	}
	if kind := response.Header.Get("Content-Type"); kind != "application/json" {
		return 0, "", fmt.Errorf("got Content-Type %q", kind)
	}
	return response.StatusCode, string(content), nil
}

// failed is the beginning of an answer to a failed request.
const failed = `{"success":false`

// isLater reports whether an answer permits that the request is repeated.
func isLater(status int, answer string) bool {
	return status == http.StatusOK && strings.HasPrefix(answer, failed)
}

var suffixes = regexp.MustCompile(`-(collector|aggregator|learner)-[bcdfghjklmnpqrstvwxz2456789]{5}`)

// golden returns the status and the answer, with fixed texts in place of random ones.
func golden(status int, answer, namespace string) string {
	answer = suffixes.ReplaceAllString(answer, "-$1-*")
	return strconv.Itoa(status) + " " + strings.ReplaceAll(answer, namespace, "NS")
}

// urlsIn returns the URLs of a role in an answer.
func urlsIn(answer string, role names.ReplicaType) []string {
	return regexp.MustCompile(`[a-z0-9-]+-`+string(role)+`-[a-z0-9]{5}\.[a-z0-9-]+:[0-9]+`).FindAllString(answer, -1)
}

// podOf returns the pod of a URL.
func podOf(url string) string {
	pod, _, _ := strings.Cut(url, ".")
	return pod
}
