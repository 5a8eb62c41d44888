// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("a server that is started and stopped", func() {
	It("serves both protocols on each address, finishes what it has read, and refuses what comes later", func(ctx SpecContext) {
		registry := prometheus.NewRegistry()
		served := start(ctx, server.Options{
			Addresses: []string{"127.0.0.1:0", "127.0.0.1:0"}, Metrics: registry,
			Times: server.Times{Request: testkit.Patience, Call: testkit.Patience},
		})
		Expect(served.NeedLeaderElection()).To(BeFalse())
		Eventually(func() error { return served.Ready(nil) }).Should(Succeed())
		first := served.addresses[0]
		for _, address := range served.addresses {
			status, _ := call(ctx, http.MethodGet, "http://"+address+"/v1alpha1/replicas", "{}")
			Expect(status).To(Equal(http.StatusOK))
			status, _ = call(ctx, http.MethodGet, "http://"+address+"/v2alpha1/none.none/replicas", "{}")
			Expect(status).To(Equal(http.StatusNotFound))
		}

		By("stopping it while a write waits for its Membership")
		namespace := specs.Namespace(ctx, api.live)
		job := newJob(ctx, namespace, trainer, coordinatorLed())
		newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
		answered := make(chan int, 1)
		go func() {
			defer GinkgoRecover()
			status, _ := call(ctx, http.MethodPost, "http://"+first+"/v1alpha1/replicas", fmt.Sprintf(
				`{"namespace":%q,"coordinator":"cartpole-dqn-coordinator","collectors":{"replicas":1}}`, namespace))
			answered <- status
		}()
		Eventually(samples).WithArguments(registry).Should(HaveKeyWithValue("requests_in_flight ", 1.0))
		Consistently(answered, "300ms").ShouldNot(Receive())
		served.stop()
		Eventually(func() error {
			_, _, err := tryCall(ctx, http.MethodGet, "http://"+first+"/healthz", "")
			return err
		}).Should(HaveOccurred())
		Expect(served.Ready(nil)).NotTo(Succeed())
		Expect(served.stopped).NotTo(Receive())
		newMembership(ctx, job)
		Eventually(answered).Should(Receive(Equal(http.StatusOK)))
		Eventually(served.stopped).Should(Receive(BeNil()))
	})

	It("is not ready while it drains, but answers, and keeps no connection", func(ctx SpecContext) {
		// The delay is longer than the suite, so the spec does not depend on speed.
		served := start(ctx, server.Options{DrainDelay: time.Hour})
		Eventually(func() error { return served.Ready(nil) }).Should(Succeed())
		get := func() *http.Response {
			GinkgoHelper()
			request := specs.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+served.addresses[0]+"/healthz", http.NoBody))
			response, err := http.DefaultClient.Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.StatusCode).To(Equal(http.StatusOK))
			return response
		}
		Expect(get().Close).To(BeFalse())
		served.stop()
		Eventually(func() error { return served.Ready(nil) }).ShouldNot(Succeed())
		Eventually(func() bool { return get().Close }).Should(BeTrue())
	})

	It("makes the sender of a request that it cannot do in time retry, and is not ready while its watches are broken", func(ctx SpecContext) {
		served := specs.Must(server.New(server.Options{
			Client: api.cached, APIReader: api.own, Cache: api.cache, Log: GinkgoLogr, Identity: auth.ModeDisabled,
			Addresses: []string{"127.0.0.1:0"}, Watches: store.NewWatches(GinkgoLogr, clock.RealClock{}),
			Times: server.Times{Request: 200 * time.Millisecond, BrokenWatch: time.Nanosecond},
		}))
		url := listen(served.Handler())
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			Expect(isLater(call(ctx, method, url+replicas, "{}"))).To(BeTrue())
		}
		Expect(status(call(ctx, http.MethodGet, url+"/healthz", ""))).To(Equal(http.StatusOK))
		running, stop := context.WithCancel(ctx)
		stopped := make(chan error, 1)
		go func() { stopped <- served.Start(running) }()
		Eventually(func() error { return served.Ready(nil) }).Should(MatchError(ContainSubstring("a watch has been broken for")))
		stop()
		Eventually(stopped).Should(Receive(BeNil()))
	})

	It("reads a body that was sent in time, however long the request was held before", func(ctx SpecContext) {
		watches, registry := store.NewWatches(GinkgoLogr, clock.RealClock{}), prometheus.NewRegistry()
		const read = 2 * time.Second
		served := start(ctx, server.Options{
			Metrics: registry, Watches: watches,
			Times: server.Times{Read: read, Body: testkit.Patience, Request: testkit.Patience, Call: testkit.Patience},
		})

		By("sending head and body apart, as deployed clients do, while the server's watches are broken")
		const body = `{"namespace":"none","coordinator":"none"}`
		var connection net.Conn
		var err error
		// The server does not read a head that arrives late, as may happen on a slow machine.
		Eventually(func(g Gomega) {
			connection, err = (&net.Dialer{}).DialContext(ctx, "tcp", served.addresses[0])
			g.Expect(err).NotTo(HaveOccurred())
			DeferCleanup(connection.Close)
			_, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: di-server\r\nContent-Length: %d\r\n\r\n", replicas, len(body))
			g.Expect(err).NotTo(HaveOccurred())
			g.Eventually(samples).WithArguments(registry).WithTimeout(2 * read).Should(HaveKeyWithValue("requests_held ", 1.0))
		}).Should(Succeed())
		answered := make(chan *http.Response, 1)
		go func() {
			response, err := http.ReadResponse(bufio.NewReader(connection), nil)
			if err == nil {
				answered <- response
			}
			close(answered)
		}()
		Consistently(answered, "100ms").ShouldNot(Receive())
		_, err = io.WriteString(connection, body)
		Expect(err).NotTo(HaveOccurred())
		Consistently(answered).WithTimeout(read + 500*time.Millisecond).ShouldNot(Receive())
		openAll(ctx, watches)
		var response *http.Response
		Eventually(answered).Should(Receive(&response))
		Expect(response.StatusCode).To(Equal(http.StatusNotFound))

	})

	It("makes a client that does not send its body retry, and closes its connection", func(ctx SpecContext) {
		registry := prometheus.NewRegistry()
		served, err := server.New(server.Options{
			Client: api.cached, APIReader: api.own, Cache: api.cache, Log: GinkgoLogr, Identity: auth.ModeDisabled, Metrics: registry,
			Times: server.Times{Body: 200 * time.Millisecond, Request: testkit.Patience},
		})
		Expect(err).NotTo(HaveOccurred())
		slow := specs.Must((&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(listen(served.Handler()), "http://")))
		DeferCleanup(slow.Close)
		_, err = fmt.Fprintf(slow, "POST %s HTTP/1.1\r\nHost: di-server\r\nContent-Length: 9\r\n\r\n", replicas)
		Expect(err).NotTo(HaveOccurred())
		Expect(slow.SetReadDeadline(time.Now().Add(testkit.Patience))).To(Succeed())
		answer := specs.Must(io.ReadAll(slow))
		Expect(string(answer)).To(And(HavePrefix("HTTP/1.1 200 "), ContainSubstring("Connection: close"), ContainSubstring(failed)))
		Eventually(samples).WithArguments(registry).Should(HaveKeyWithValue("requests_total later POST /v1alpha1/replicas", 1.0))
	})

	It("lets a body wait while there is no room for it, and no other sender's", func(ctx SpecContext) {
		registry := prometheus.NewRegistry()
		url := newServer(api.cached, func(options *server.Options) { options.Metrics = registry }) + replicas + "/failed"
		// These reports use the whole share of their sender and never end.
		const reports = 4
		for range reports {
			read, write := io.Pipe()
			DeferCleanup(write.Close)
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, read)
			Expect(err).NotTo(HaveOccurred())
			go func() {
				// A client that is late to read finds its connection reset, so it cannot tell what it was answered.
				if response, err := http.DefaultClient.Do(request); err == nil {
					_ = response.Body.Close()
				}
			}()
			_, err = io.WriteString(write, strings.Repeat(" ", 300<<10))
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(samples).WithArguments(registry).Should(HaveKeyWithValue("requests_in_flight ", float64(reports)))
		Expect(status(callFrom(ctx, "127.8.0.1", http.MethodPost, url, "{}"))).To(Equal(http.StatusBadRequest))
		Expect(status(call(ctx, http.MethodPost, url, "{}"))).To(Equal(http.StatusBadRequest))
		Eventually(samples).WithArguments(registry).Should(
			HaveKeyWithValue("requests_total later POST /v1alpha1/replicas/failed", BeNumerically(">=", 1)), "the oldest gives up its room")
	})

	It("says which options are missing, and which address is no good", func(ctx SpecContext) {
		_, err := server.New(server.Options{})
		Expect(err).To(MatchError("server options: Client, APIReader and Cache are required"))
		served := specs.Must(server.New(server.Options{
			Client: api.cached, APIReader: api.own, Cache: api.cache, Log: GinkgoLogr,
			Addresses: []string{"127.0.0.1:0", "nowhere"},
		}))
		Expect(served.Ready(nil)).NotTo(Succeed(), "it is not started")
		Expect(served.Start(ctx)).To(MatchError(ContainSubstring(`listening on "nowhere"`)))
	})
})

// opened is an API server whose watches all open and deliver nothing.
type opened struct{}

func (opened) RoundTrip(*http.Request) (*http.Response, error) {
	silent, _ := io.Pipe()
	return &http.Response{StatusCode: http.StatusOK, Body: silent}, nil
}

// openAll opens all watches.
func openAll(ctx context.Context, watches *store.Watches) {
	GinkgoHelper()
	through := watches.Wrap(opened{})
	for _, resource := range []string{"dijobs", "memberships", "aggregatorconfigs", "pods"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api/"+resource+"?watch=true", http.NoBody)
		Expect(err).NotTo(HaveOccurred())
		_, err = through.RoundTrip(request) //nolint:bodyclose // it stays open
		Expect(err).NotTo(HaveOccurred())
	}
}
