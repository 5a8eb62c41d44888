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

// Handler makes a span of each request that is wanted, a child of its sender's
// where it has one. The handler names it where it has no pattern of
// http.ServeMux. Without a provider it is the handler itself.
func Handler(next http.Handler, provider trace.TracerProvider, wanted func(*http.Request) bool) http.Handler {
	return handler(next, provider, wanted)
}

// Public is Handler for a server that strangers reach: what they send does not
// decide whether their requests are recorded. A span begins a trace of its own and
// is linked to its sender's.
func Public(next http.Handler, provider trace.TracerProvider, wanted func(*http.Request) bool) http.Handler {
	stranger := func(*http.Request) bool { return true }
	return handler(next, provider, wanted, otelhttp.WithPublicEndpointFn(stranger))
}

func handler(next http.Handler, provider trace.TracerProvider, wanted func(*http.Request) bool, more ...otelhttp.Option) http.Handler {
	if provider == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", append(more,
		otelhttp.WithTracerProvider(provider),
		otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelhttp.WithPropagators(propagator()),
		otelhttp.WithFilter(wanted),
	)...)
}

// Transport returns what makes a span of each call to the API server that belongs
// to a trace, and tells the API server of it. Calls that belong to none, such as
// watches, leases and events, begin none. Without a provider it returns nil.
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

// belongs reports whether a call is made on behalf of what is traced.
func belongs(request *http.Request) bool {
	return trace.SpanContextFromContext(request.Context()).IsValid()
}

// resourceOf returns the resource that a path of the API server is about, such
// as pods or dijobs/status, without names: few spans have a name of their own.
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

// The keys of what spans say of jobs.
const (
	JobNameKey      = attribute.Key("di.job.name")
	JobUIDKey       = attribute.Key("di.job.uid")
	JobLifecycleKey = attribute.Key("di.job.lifecycle")
)
