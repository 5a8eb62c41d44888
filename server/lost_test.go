// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// flakyClient is a client with some failing writes and live reads.
type flakyClient struct {
	client.Client
	// failures is the number of further writes that fail, with err.
	failures atomic.Int32
	err      error
	// done reports whether the writes that fail reach the API server.
	done bool
	// cut makes live reads fail after a failed write, until the request's deadline.
	cut   bool
	blind atomic.Bool
	// writes is how many writes reached the API server.
	writes atomic.Int32
}

func (f *flakyClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return f.write(func() error { return f.Client.Update(ctx, object, options...) })
}

func (f *flakyClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return f.write(func() error { return f.Client.Patch(ctx, object, patch, options...) })
}

func (f *flakyClient) SubResource(name string) client.SubResourceClient {
	return flakySubResource{f.Client.SubResource(name), f}
}

type flakySubResource struct {
	client.SubResourceClient
	flaky *flakyClient
}

func (s flakySubResource) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return s.flaky.write(func() error { return s.SubResourceClient.Patch(ctx, object, patch, options...) })
}

func (f *flakyClient) write(do func() error) error {
	fails := f.failures.Add(-1) >= 0
	if !fails || f.done {
		if err := do(); err != nil {
			return err
		}
		f.writes.Add(1)
	}
	if !fails {
		return nil
	}
	f.blind.Store(f.cut)
	return f.err
}

// reader is the live reader that goes with the client.
func (f *flakyClient) reader() client.Reader { return flakyReader{api.live, f} }

type flakyReader struct {
	client.Reader
	flaky *flakyClient
}

func (r flakyReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if r.flaky.blind.Load() {
		endTime(ctx)
		return errLost
	}
	return r.Reader.Get(ctx, key, object, options...)
}

var errLost = &url.Error{Op: "Put", URL: "https://api", Err: errors.New("http2: client connection lost")}

var _ = Describe("a write", func() {
	var namespace string
	var job *v2alpha1.DIJob

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		job = newTrainer(ctx, namespace)
	})

	body := func(rest string) string {
		return fmt.Sprintf(`{"namespace":%q,"coordinator":"cartpole-dqn-coordinator",%s}`, namespace, rest)
	}
	// have gives the job collectors through a server that never fails.
	have := func(ctx context.Context, collectors int) string {
		GinkgoHelper()
		code, answer := call(ctx, http.MethodPost, newServer(api.cached)+"/v1alpha1/replicas", body(fmt.Sprintf(`"collectors":{"replicas":%d,"cpus":1}`, collectors)))
		Expect(code).To(Equal(http.StatusOK), answer)
		return podOf(urlsIn(answer, names.ReplicaTypeCollector)[0])
	}
	// lasting is the expected state after a request was applied once to three collectors.
	type request struct {
		method, path, body string
		members, reports   int
		// writes is the number of writes of the request. A removal needs another write that marks it as
		// answered.
		writes int
	}
	requests := func(known string) map[string]request {
		return map[string]request{
			"POST":    {http.MethodPost, "/v1alpha1/replicas", body(`"collectors":{"replicas":2}`), 5, 0, 1},
			"DELETE":  {http.MethodDelete, "/v1alpha1/replicas", body(`"collectors":{"replicas":1}`), 2, 0, 2},
			"/failed": {http.MethodPost, "/v1alpha1/replicas/failed", body(fmt.Sprintf(`"collectors":[%q]`, known)), 3, 1, 1},
		}
	}
	expectOnce := func(ctx context.Context, want request) {
		GinkgoHelper()
		members := membershipOf(ctx, job).Spec.Members
		reports := int32(0)
		for _, member := range members {
			reports += member.FailureReports
		}
		Expect(members).To(HaveLen(want.members))
		Expect(reports).To(BeEquivalentTo(want.reports))
	}

	for _, name := range []string{"POST", "DELETE", "/failed"} {
		It("whose answer is lost on the way from the API server is done once: "+name, func(ctx SpecContext) {
			request := requests(have(ctx, 3))[name]
			flaky := &flakyClient{Client: api.cached, err: errLost, done: true}
			flaky.failures.Store(1)
			code, answer := call(ctx, request.method, newServer(flaky)+request.path, request.body)
			Expect(code).To(Equal(http.StatusOK), answer)
			Expect(flaky.writes.Load()).To(BeEquivalentTo(request.writes))
			expectOnce(ctx, request)
		})

		It("whose outcome the server never learns is done once when it is sent again: "+name, func(ctx SpecContext) {
			request := requests(have(ctx, 3))[name]
			flaky := &flakyClient{Client: api.cached, err: errLost, done: true, cut: true}
			flaky.failures.Store(1)
			base := newServer(flaky)
			for range 2 {
				Expect(isLater(call(ctx, request.method, base+request.path, request.body))).To(BeTrue())
			}
			flaky.blind.Store(false)
			code, answer := call(ctx, request.method, base+request.path, request.body)
			Expect(code).To(Equal(http.StatusOK), answer)
			expectOnce(ctx, request)
		})

		It("that did not reach the API server is done when it is sent again: "+name, func(ctx SpecContext) {
			request := requests(have(ctx, 3))[name]
			flaky := &flakyClient{Client: api.cached, err: errLost, cut: true}
			flaky.failures.Store(1)
			base := newServer(flaky)
			Expect(isLater(call(ctx, request.method, base+request.path, request.body))).To(BeTrue())
			flaky.blind.Store(false)
			code, answer := call(ctx, request.method, base+request.path, request.body)
			Expect(code).To(Equal(http.StatusOK), answer)
			expectOnce(ctx, request)
		})
	}

	It("of a worker-led job whose answer is lost on the way from the API server is done once", func(ctx SpecContext) {
		two := int32(2)
		tasks := []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Name: "collector", Replicas: &two, Template: jobs.Serving()}}
		newJob(ctx, namespace, "plain", v2alpha1.DIJobSpec{Tasks: tasks})
		newJob(ctx, namespace, "preemptible", v2alpha1.DIJobSpec{Tasks: tasks, Preemptible: true})
		flaky := &flakyClient{Client: api.cached, err: errLost, done: true}
		base := newServer(flaky)
		read := func(name string) *v2alpha1.DIJob {
			var read v2alpha1.DIJob
			Expect(api.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &read)).To(Succeed())
			return &read
		}
		for _, name := range []string{"plain", "preemptible"} {
			for range 2 {
				flaky.failures.Store(1)
				code, answer := call(ctx, http.MethodPost, base+"/v2alpha1/"+namespace+"."+name+"/replicas", `{"replicas":3}`)
				Expect(code).To(Equal(http.StatusOK), answer)
			}
		}
		Expect(read("plain").Status.Replicas).To(BeEquivalentTo(8))
		Expect(*read("preemptible").Spec.Elastic.MaxReplicas).To(BeEquivalentTo(8))
	})

	memberships := schema.GroupResource{Group: v2alpha1.GroupName, Resource: "memberships"}
	DescribeTable("is done when what kept it from it has passed",
		func(ctx SpecContext, err error) {
			flaky := &flakyClient{Client: api.cached, err: err}
			flaky.failures.Store(2)
			code, answer := call(ctx, http.MethodPost, newServer(flaky)+"/v1alpha1/replicas", body(`"collectors":{"replicas":2}`))
			Expect(code).To(Equal(http.StatusOK), answer)
			Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(2))
		},
		Entry("a conflict", apierrors.NewConflict(memberships, trainer, errors.New("changed"))),
		Entry("an etcd that elects a leader", apierrors.NewInternalError(errors.New("etcdserver: leader changed"))),
		Entry("an etcd that is slow", apierrors.NewInternalError(errors.New("etcdserver: request timed out"))),
		Entry("a proxy without API server", apierrors.NewGenericServerResponse(http.StatusBadGateway, "PUT", memberships, trainer, "bad gateway", 0, true)),
		Entry("an API server that starts", apierrors.NewServiceUnavailable("starting")),
		Entry("an API server that times out", apierrors.NewTimeoutError("slow", 1)),
		Entry("an API server that is overloaded", apierrors.NewTooManyRequests("busy", 1)),
		Entry("a path that is not served yet", apierrors.NewGenericServerResponse(http.StatusNotFound, "PUT", memberships, trainer, "404 page not found", 0, true)),
		Entry("a role that is not there yet", apierrors.NewForbidden(memberships, trainer, errors.New("no role"))),
		Entry("an own token that is not known yet", apierrors.NewUnauthorized("unknown")),
		Entry("a connection refused", &url.Error{Op: "Put", Err: syscall.ECONNREFUSED}),
		Entry("a connection reset", &url.Error{Op: "Put", Err: syscall.ECONNRESET}),
		Entry("a connection closed", &url.Error{Op: "Put", Err: io.ErrUnexpectedEOF}),
		Entry("a connection lost", errLost),
		Entry("a handshake that takes long", &url.Error{Op: "Put", Err: errors.New("net/http: TLS handshake timeout")}),
		Entry("a call that goes nowhere", context.DeadlineExceeded),
	)

	DescribeTable("is not tried again when the API server will not take it",
		func(ctx SpecContext, err error) {
			flaky := &flakyClient{Client: api.cached, err: err}
			flaky.failures.Store(1000)
			code, answer := call(ctx, http.MethodPost, newServer(flaky)+"/v1alpha1/replicas", body(`"collectors":{"replicas":2}`))
			Expect(code).To(Equal(http.StatusOK))
			Expect(answer).To(Equal(failed + `,"code":1,"message":"the request could not be done, see the log of di-server","data":null}`))
			Expect(flaky.failures.Load()).To(BeEquivalentTo(999))
		},
		Entry("as it is invalid", apierrors.NewInvalid(schema.GroupKind{}, trainer, nil)),
		Entry("as it is malformed", apierrors.NewBadRequest("malformed")),
		Entry("as it is too large", apierrors.NewRequestEntityTooLargeError("large")),
		Entry("as it does not know how", apierrors.NewMethodNotSupported(memberships, "update")),
	)

	It("waits for the status of a coordinator that was restarted in place", func(ctx SpecContext) {
		request := body(`"collectors":{"replicas":2}`)
		base := newServer(api.cached, func(options *server.Options) { options.Times.Successor = testkit.Patience }) + "/v1alpha1/replicas"
		Expect(status(call(ctx, http.MethodPost, base, request))).To(Equal(http.StatusOK))
		setStatus := func(state string) {
			GinkgoHelper()
			setMainContainer(ctx, namespace, state)
		}
		for restarts, ended := range []string{
			`{"restartCount":0,"state":{"terminated":{"exitCode":1}}}`,
			`{"restartCount":1,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}`,
		} {
			setStatus(ended)
			answered := make(chan int, 1)
			go func() {
				defer GinkgoRecover()
				answered <- status(call(ctx, http.MethodPost, base, request))
			}()
			Consistently(answered, "200ms").ShouldNot(Receive())
			setStatus(fmt.Sprintf(`{"restartCount":%d,"state":{"running":{}}}`, restarts+1))
			Eventually(answered).Should(Receive(Equal(http.StatusOK)))
			Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(2))
			Expect(membershipOf(ctx, job).Spec.CoordinatorInstance).To(HaveSuffix(fmt.Sprintf("/%d", restarts+1)))
		}

		By("going on with what the status says when it does not come along")
		impatient := newServer(api.cached, func(options *server.Options) { options.Times.Successor = 100 * time.Millisecond })
		setStatus(`{"restartCount":2,"state":{"terminated":{"exitCode":1}}}`)
		Expect(status(call(ctx, http.MethodPost, impatient+"/v1alpha1/replicas", body(`"collectors":{"replicas":3}`)))).To(Equal(http.StatusOK))
	})
})

// setMainContainer sets the status of the main container of the trainer's coordinator.
func setMainContainer(ctx context.Context, namespace, status string) {
	GinkgoHelper()
	pod := podNamed(namespace, names.CoordinatorPod(trainer))
	status = status[:1] + fmt.Sprintf(`"name":%q,"image":"di","imageID":"","ready":false,`, names.Container) + status[1:]
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"phase":"Running","containerStatuses":[%s]}}`, status))
	Expect(api.live.Status().Patch(ctx, pod, patch)).To(Succeed())
}
