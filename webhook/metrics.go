// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// hookMetrics are the metrics of the webhooks. It also logs panics of conversions.
type hookMetrics struct {
	telemetry.Set
	log        logr.Logger
	converted  *prometheus.CounterVec
	panics     *prometheus.CounterVec
	objects    *prometheus.HistogramVec
	bytes      *prometheus.GaugeVec
	duration   *prometheus.HistogramVec
	admissions *prometheus.CounterVec

	restorations *prometheus.CounterVec
	refused      *prometheus.CounterVec
}

// refusedValues is the reason of a review with too many JSON values or objects, in addition to the
// reasons of netlimit.
const refusedValues = "values"

// The results of admission requests.
const (
	admissionAllowed = "allowed"
	admissionDenied  = "denied"
	admissionFailed  = "failed"
)

// newHookMetrics registers the metrics unless the registerer is nil.
func newHookMetrics(registerer prometheus.Registerer, log logr.Logger) (*hookMetrics, error) {
	m := &hookMetrics{log: log}
	versions := []string{v1alpha1.Version, v2alpha1.Version, telemetry.Other}
	m.converted = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_conversions_total", Unit: "objects",
		Help: "Objects in conversion reviews, by their version, the requested version, and the result: converted, unchanged or failed.",
		Labels: []telemetry.Label{{Name: "from", Values: versions}, {Name: "to", Values: versions}, {Name: "result", Values: []string{
			string(conversion.ResultConverted), string(conversion.ResultUnchanged), string(conversion.ResultFailed),
		}}},
	})
	m.panics = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_conversion_panics_total", Unit: "objects",
		Help: "Objects whose conversion panicked; each is a bug of this program, and its log has the stack.",
	})
	m.objects = m.Histogram(telemetry.Metric{
		Name: "di_orchestrator_conversion_review_objects", Help: "Objects in a conversion review.", Unit: "objects",
	}, 0, 1, 10, 50, 100, 500, 1000, 2000, 5000, 10_000, 50_000)
	m.bytes = m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_conversion_bytes_in_flight", Help: "Bytes of the conversion reviews in flight.", Unit: "bytes",
	})
	// The bounds 0.05, 1 and 6 are those of the service level objective for conversion: one object,
	// a namespace's list, a cluster's list.
	m.duration = m.Histogram(telemetry.Metric{
		Name: "di_orchestrator_conversion_review_duration_seconds", Unit: "seconds",
		Help:   "Time to answer a conversion review, including waiting, reading and writing, by HTTP status.",
		Labels: []telemetry.Label{{Name: "code", Values: []string{"200", "400", "405", "408", "413", "415", "500", "503", telemetry.Other}}},
	}, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 6, 10, 30)
	m.admissions = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_admission_requests_total", Unit: "requests",
		Help: "Admission reviews, by webhook, version that the user wrote, operation, and result: allowed, denied (invalid), or failed (unreadable object).",
		Labels: []telemetry.Label{
			{Name: "webhook", Values: []string{"mutate-dijob", "validate-dijob", "validate-aggregatorconfig", "validate-dijob-scale", "validate-scaleplan", "validate-planned-dijob", "check-dijob-pods"}},
			{Name: "version", Values: versions},
			{Name: "operation", Values: []string{"CREATE", "UPDATE"}},
			{Name: "result", Values: []string{admissionAllowed, admissionDenied, admissionFailed}},
		},
	})
	m.restorations = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_webhook_restorations_total", Unit: "writes",
		Help: "How often these webhooks restored webhook configuration that another client had overwritten, by kind and " +
			"part: conversion strategy, CA bundle or endpoint. Steady growth means that another client keeps applying old manifests.",
		Labels: []telemetry.Label{
			{Name: "kind", Values: []string{"CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}},
			{Name: "part", Values: []string{certs.PartConversion, certs.PartBundle, certs.PartEndpoint}},
		},
	})
	m.refused = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_webhook_refused_total", Unit: "none",
		Help: "Closed connections to the webhooks' port and unanswered reviews, by reason: connections (too many), " +
			"slow (body too slow), shed (body dropped in favour of others), room (no buffer in time), " +
			"size (body too large), values (too many JSON values or objects).",
		Labels: []telemetry.Label{{Name: "reason", Values: []string{
			netlimit.ReasonConnections, netlimit.ReasonSlow, netlimit.ReasonShed, netlimit.ReasonRoom, netlimit.ReasonSize, refusedValues,
		}}},
	})
	if registerer == nil {
		return m, nil
	}
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the webhooks' metrics: %w", err)
	}
	return m, nil
}

// counted counts the results of a webhook's admission requests. A panic counts as a failure.
func (m *hookMetrics) counted(path string, handle admission.HandlerFunc) admission.HandlerFunc {
	hook := strings.NewReplacer("/", "", "-"+v1alpha1.Version, "", "-"+v2alpha1.Version, "").Replace(path)
	return func(ctx context.Context, request admission.Request) admission.Response {
		result := admissionFailed
		defer func() {
			m.admissions.WithLabelValues(hook, request.Kind.Version, string(request.Operation), result).Inc()
			traceQuestion(ctx, &request, result)
		}()
		response := handle(ctx, request)
		result = resultOf(&response)
		return response
	}
}

func resultOf(response *admission.Response) string {
	switch {
	case response.Allowed:
		return admissionAllowed
	case response.Result != nil && response.Result.Reason == metav1.StatusReasonInvalid:
		return admissionDenied
	}
	return admissionFailed
}

// timed measures the latency of the endpoint.
func (m *hookMetrics) timed(endpoint http.Handler) http.Handler {
	return promhttp.InstrumentHandlerDuration(m.duration, endpoint)
}

func (m *hookMetrics) connectionRefused() {
	m.refused.WithLabelValues(netlimit.ReasonConnections).Inc()
}

// Refused implements conversion.Observer, and counts admission reviews too. A request that its
// sender cancelled, or that is not a review, does not count as refused.
func (m *hookMetrics) Refused(err error) {
	reason := netlimit.ReasonOf(err)
	if errors.Is(err, errTooManyValues) || errors.Is(err, conversion.ErrTooManyObjects) {
		reason = refusedValues
	}
	if reason != "" {
		m.refused.WithLabelValues(reason).Inc()
	}
}

// Holding implements conversion.Observer.
func (m *hookMetrics) Holding(bytes int64) {
	m.bytes.WithLabelValues().Add(float64(bytes))
}

// Reviewed implements conversion.Observer.
func (m *hookMetrics) Reviewed(ctx context.Context, outcome conversion.Outcome) {
	traceReview(ctx, &outcome)
	m.objects.WithLabelValues().Observe(float64(outcome.Objects))
	m.panics.WithLabelValues().Add(float64(outcome.Panics))
	for of, count := range outcome.Conversions {
		m.converted.WithLabelValues(of.From, of.To, string(of.Result)).Add(float64(count))
	}
	for _, panicked := range outcome.Panicked {
		job := types.NamespacedName{Namespace: panicked.Namespace, Name: panicked.Name}
		m.log.WithValues(names.LogJob(job)...).Error(errors.New(panicked.Cause), "Conversion panicked", "object", panicked.Object, "stack", panicked.Stack)
	}
}
