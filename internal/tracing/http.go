// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
)

// Wanted reports whether a request may have a span.
type Wanted func(*http.Request) bool

// Handler creates a span for each sampled request, as a child of the sender's span
// if it has one. The handler names the span if it has no pattern of http.ServeMux.
// Without a provider it returns the handler itself.
func Handler(next http.Handler, provider trace.TracerProvider, wanted Wanted) http.Handler {
	return handler(next, provider, wanted)
}

// Public is Handler for a server with untrusted clients, who do not decide whether
// their requests are sampled. A span starts its own trace, and links to the
// sender's.
func Public(next http.Handler, provider trace.TracerProvider, wanted Wanted) http.Handler {
	stranger := func(*http.Request) bool { return true }
	return handler(next, provider, wanted, otelhttp.WithPublicEndpointFn(stranger))
}

func handler(next http.Handler, provider trace.TracerProvider, wanted Wanted, more ...otelhttp.Option) http.Handler {
	if provider == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", append(more,
		otelhttp.WithTracerProvider(provider),
		otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelhttp.WithPropagators(propagator()),
		otelhttp.WithFilter(otelhttp.Filter(wanted)),
	)...)
}

// Transport returns a wrapper that creates a span for each call to the API server
// within a trace, and propagates it. Calls outside of a trace, such as watches,
// leases and events, start none. Without a provider it returns nil.
func Transport(provider trace.TracerProvider) func(http.RoundTripper) http.RoundTripper {
	if provider == nil {
		return nil
	}
	return func(next http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(next,
			otelhttp.WithTracerProvider(provider),
			otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
			otelhttp.WithPropagators(propagator()),
			otelhttp.WithFilter(belongs),
			otelhttp.WithSpanNameFormatter(func(_ string, request *http.Request) string {
				return request.Method + " " + resourceOf(request.URL.Path)
			}),
		)
	}
}

// belongs reports whether a call is part of a trace.
func belongs(request *http.Request) bool {
	return trace.SpanContextFromContext(request.Context()).IsValid()
}

// resourceOf returns the resource in a path of the API server, such as pods or
// dijobs/status. It omits names of objects, to keep the number of span names low.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "discovery"
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}

// The keys of span attributes about jobs.
const (
	JobNameKey      = attribute.Key("di.job.name")
	JobUIDKey       = attribute.Key("di.job.uid")
	JobLifecycleKey = attribute.Key("di.job.lifecycle")
)
