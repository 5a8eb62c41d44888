// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
)

var _ = Describe("a server that is started and stopped", func() {
	It("serves both protocols on each address, finishes what it has read, and refuses what comes later", func(ctx SpecContext) {
		addresses := make(chan string, 2)
		log := funcr.New(func(_, line string) {
			if found := regexp.MustCompile(`"address"="([^"]+)"`).FindStringSubmatch(line); found != nil {
				addresses <- found[1]
			}
		}, funcr.Options{})
		served, err := server.New(server.Options{
			Client: api.cached, APIReader: api.live, Cache: api.cache, Log: log, Identity: server.ModeOff,
			Addresses: []string{"127.0.0.1:0", "127.0.0.1:0"},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(served.NeedLeaderElection()).To(BeFalse())
		Expect(served.Ready(nil)).NotTo(Succeed())
		running, stop := context.WithCancel(ctx)
		defer stop()
		stopped := make(chan error, 1)
		go func() { stopped <- served.Start(running) }()
		var first, second string
		Eventually(addresses, "10s").Should(Receive(&first))
		Eventually(addresses, "10s").Should(Receive(&second))
		Eventually(func() error { return served.Ready(nil) }).Should(Succeed())
		for _, address := range []string{first, second} {
			status, _ := call(ctx, http.MethodGet, "http://"+address+"/v1alpha1/replicas", "{}")
			Expect(status).To(Equal(http.StatusOK))
			status, _ = call(ctx, http.MethodGet, "http://"+address+"/v2alpha1/none.none/replicas", "{}")
			Expect(status).To(Equal(http.StatusNotFound))
		}

		By("stopping it while a write waits for its Membership")
		namespace := newNamespace(ctx)
		job := newJob(ctx, namespace, trainer, coordinatorLed())
		newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
		answered := make(chan int, 1)
		go func() {
			defer GinkgoRecover()
			status, _ := call(ctx, http.MethodPost, "http://"+first+"/v1alpha1/replicas", fmt.Sprintf(
				`{"namespace":%q,"coordinator":"cartpole-dqn-coordinator","collectors":{"replicas":1}}`, namespace))
			answered <- status
		}()
		Consistently(answered, "300ms").ShouldNot(Receive())
		stop()
		Eventually(func() error {
			_, _, err := tryCall(ctx, http.MethodGet, "http://"+first+"/healthz", "")
			return err
		}).Should(HaveOccurred())
		Expect(served.Ready(nil)).NotTo(Succeed())
		Expect(stopped).NotTo(Receive())
		newMembership(ctx, job)
		Eventually(answered, "5s").Should(Receive(Equal(http.StatusOK)))
		Eventually(stopped, "5s").Should(Receive(BeNil()))
	})

	It("says which options are missing, and which address is no good", func(ctx SpecContext) {
		_, err := server.New(server.Options{})
		Expect(err).To(MatchError("server options: Client, APIReader and Cache are required"))
		served, err := server.New(server.Options{
			Client: api.cached, APIReader: api.live, Cache: api.cache, Log: GinkgoLogr,
			Addresses: []string{"127.0.0.1:0", "nowhere"},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(served.Start(ctx)).To(MatchError(ContainSubstring(`listening on "nowhere"`)))
	})
})
