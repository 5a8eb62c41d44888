// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zapcore"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// samples returns the values of the server's counters and gauges, and the counts of its histograms, by
// name and labels. It omits zeros.
func samples(registry prometheus.Gatherer) map[string]float64 {
	GinkgoHelper()
	families := specs.Must(registry.Gather())
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			if value != 0 {
				found[strings.TrimPrefix(family.GetName(), "di_orchestrator_server_")+" "+strings.Join(labels, " ")] = value
			}
		}
	}
	return found
}

var _ = Describe("The metrics of requests", func() {
	It("count them by route, method and code, for any made-up path", func(ctx SpecContext) {
		registry := prometheus.NewRegistry()
		base := newServer(api.cached, func(options *server.Options) { options.Metrics = registry })
		namespace := specs.Namespace(ctx, api.live)
		cacheKnows(ctx, newTrainer(ctx, namespace))
		for _, path := range []string{
			"/v1alpha1/replicas?namespace=" + namespace, "/v1alpha1/replicas?namespace=" + namespace + "&coordinator=unknown",
			"/v2alpha1/a.b.0/replicas", "/v2alpha1/c.d.0/replicas", "/made/up", "/made/up/too",
		} {
			call(ctx, http.MethodGet, base+path, "")
		}
		call(ctx, http.MethodPost, base+"/v1alpha1/replicas", "{")
		call(ctx, "BREW", base+"/v1alpha1/replicas", "")
		Eventually(samples).WithArguments(registry).Should(Equal(map[string]float64{
			"requests_total 200 GET /v1alpha1/replicas":               1,
			"requests_total 404 GET /v1alpha1/replicas":               1,
			"requests_total 400 POST /v1alpha1/replicas":              1,
			"requests_total 404 GET /v2alpha1/:job_id/replicas":       2,
			"requests_total 404 GET unknown":                          2,
			"requests_total 501 other unknown":                        1,
			"request_duration_seconds GET /v1alpha1/replicas":         2,
			"request_duration_seconds POST /v1alpha1/replicas":        1,
			"request_duration_seconds GET /v2alpha1/:job_id/replicas": 2,
			"request_duration_seconds GET unknown":                    2,
			"request_duration_seconds other unknown":                  1,
		}))
	})

	It("have requests that are held, and those that fail for now", func(ctx SpecContext) {
		registry := prometheus.NewRegistry()
		base := newServer(api.cached, within(200*time.Millisecond), func(options *server.Options) {
			options.Metrics, options.Watches = registry, store.NewWatches(GinkgoLogr, clock.RealClock{})
		})
		Expect(isLater(call(ctx, http.MethodGet, base+"/v1alpha1/replicas", ""))).To(BeTrue())
		Eventually(samples).WithArguments(registry).Should(And(
			HaveKeyWithValue("requests_total later GET /v1alpha1/replicas", 1.0), HaveKeyWithValue("requests_held_total ", 1.0),
			Not(HaveKey("requests_held ")), Not(HaveKey("requests_in_flight ")), Not(HaveKey("watch_open dijobs")),
		))
	})

	It("logs each request for those who debug, and each write, with its job and its caller", func(ctx SpecContext) {
		log, lines := testkit.ObserveLog()
		base := newServer(api.cached, func(options *server.Options) { options.Log = log })
		namespace := specs.Namespace(ctx, api.live)
		job := newTrainer(ctx, namespace)
		cacheKnows(ctx, job)
		cacheKnows(ctx, podNamed(namespace, "cartpole-dqn-coordinator"))
		query := fmt.Sprintf("?namespace=%s&coordinator=cartpole-dqn-coordinator", namespace)
		Expect(status(call(ctx, http.MethodGet, base+"/v1alpha1/replicas"+query, ""))).To(Equal(http.StatusOK))
		Expect(status(call(ctx, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(
			`{"namespace":%q,"coordinator":"cartpole-dqn-coordinator","collectors":{"replicas":1}}`, namespace)))).To(Equal(http.StatusOK))
		Eventually(func() int { return lines.FilterMessage("Request").Len() }).Should(Equal(2))
		about := lines.FilterFieldKey("caller").All()
		Expect(about).To(HaveLen(3))
		for _, line := range about {
			Expect(line.ContextMap()).To(And(
				HaveKeyWithValue("namespace", namespace), HaveKeyWithValue("name", trainer),
				HaveKeyWithValue("uid", string(job.UID)), HaveKeyWithValue("lifecycle", "CoordinatorLed"), HaveKey("identity"),
			), line.Message)
			if line.Message == "Request" {
				Expect(line.Level).To(Equal(zapcore.DebugLevel))
				Expect(line.ContextMap()).To(And(
					HaveKeyWithValue("route", "/v1alpha1/replicas"), HaveKeyWithValue("code", "200"), HaveKey("duration"), HaveKey("method"),
				))
				continue
			}
			Expect(line.Level).To(Equal(zapcore.InfoLevel))
			Expect(line.Message).To(HavePrefix("Write: "))
		}
	})
})
