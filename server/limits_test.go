// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// hurried gives the handler's removals less time than other requests, because these specs wait for them in
// vain.
func hurried(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		ctx := request.Context()
		if request.Method == http.MethodDelete {
			// The timeout is many times as long as the server needs until it waits.
			bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			ctx = bounded
		}
		handler.ServeHTTP(writer, request.WithContext(ctx))
	})
}

var _ = Describe("what one job may ask for", func() {
	serve := func(limits server.Limits, log *gbytes.Buffer) string {
		GinkgoHelper()
		served := specs.Must(server.New(server.Options{
			Client: api.cached, APIReader: api.own, Cache: api.cache, Identity: auth.ModeDisabled, Limits: limits,
			Times: server.Times{Request: testkit.Patience, Call: testkit.Patience},
			Log:   funcr.New(func(_, args string) { _, _ = fmt.Fprintln(log, args) }, funcr.Options{}),
		}))
		return listen(hurried(served.Handler()))
	}
	ask := func(namespace string, collectors int) string {
		return fmt.Sprintf(`{"namespace":%q,"coordinator":%q,"collectors":{"replicas":%d}}`, namespace, names.CoordinatorPod(trainer), collectors)
	}

	It("is bounded for each request, for the job, and in time", func(ctx SpecContext) {
		namespace, log := specs.Namespace(ctx, api.live), gbytes.NewBuffer()
		job := newTrainer(ctx, namespace)
		url := serve(server.Limits{ReplicasPerRequest: 3, ReplicasPerJob: 4, WritesPerSecond: 1e-6, WriteBurst: 3}, log) + "/v1alpha1/replicas"

		code, answer := call(ctx, http.MethodPost, url, ask(namespace, 4))
		Expect(code).To(Equal(http.StatusBadRequest))
		Expect(answer).To(ContainSubstring("collectors.replicas: 4 is more than the 3 that one request may ask for"))

		Expect(status(call(ctx, http.MethodPost, url, ask(namespace, 3)))).To(Equal(http.StatusOK))
		Expect(log).To(gbytes.Say(`"Write: successfully create replicas" "namespace"="%s" "name"="%s" .* "collectors"=3 "learners"=0`, namespace, trainer))

		code, answer = call(ctx, http.MethodPost, url, ask(namespace, 2))
		Expect(code).To(Equal(http.StatusBadRequest))
		Expect(answer).To(ContainSubstring("replicas: the job would have 5 replicas, more than the 4 that one may have"))

		Expect(status(call(ctx, http.MethodPost, url, ask(namespace, 1)))).To(Equal(http.StatusOK))
		Expect(isLater(call(ctx, http.MethodDelete, url, ask(namespace, 1)))).To(BeTrue())
		Expect(log).To(gbytes.Say("more than 1e-06 writes for one job a second"))
		Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(4))
	})

	It("holds for worker-led jobs too", func(ctx SpecContext) {
		namespace, log := specs.Namespace(ctx, api.live), gbytes.NewBuffer()
		newJob(ctx, namespace, "w", v2alpha1.DIJobSpec{
			Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Name: "collector", Template: jobs.Serving()}},
		})
		url := serve(server.Limits{ReplicasPerRequest: 3, ReplicasPerJob: 4}, log) + "/v2alpha1/" + namespace + ".w/replicas"
		Expect(status(call(ctx, http.MethodPost, url, `{"replicas":4}`))).To(Equal(http.StatusBadRequest))
		Expect(status(call(ctx, http.MethodPost, url, `{"replicas":3}`))).To(Equal(http.StatusOK))
		Expect(log).To(gbytes.Say(`"replicas"=3`))
		Expect(status(call(ctx, http.MethodPost, url, `{"replicas":1}`))).To(Equal(http.StatusBadRequest))
	})
})
