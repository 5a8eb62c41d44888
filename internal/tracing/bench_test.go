// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"context"
	stdhex "encoding/hex"
	"net/http"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/internal/tracing"
)

func hex(id []byte) string { return stdhex.EncodeToString(id) }

// providers are what the benchmarks compare: nothing around, as the reference,
// traces that are off, and traces with none or all recorded.
func providers() map[string]trace.TracerProvider {
	return map[string]trace.TracerProvider{
		"off":        nil,
		"unrecorded": sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())),
		"recorded":   sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())),
	}
}

func BenchmarkRequest(b *testing.B) {
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	serve := func(handler http.Handler) func(*testing.B) {
		return func(b *testing.B) {
			b.Helper()
			b.ReportAllocs()
			request := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v2alpha1/ns.job/replicas", http.NoBody)
			for b.Loop() {
				handler.ServeHTTP(httptest.NewRecorder(), request)
			}
		}
	}
	b.Run("reference", serve(inner))
	for name, provider := range providers() {
		b.Run(name, serve(tracing.Handler(inner, provider, all)))
	}
}

func BenchmarkPass(b *testing.B) {
	run := func(reconciler reconcile.Reconciler) func(*testing.B) {
		return func(b *testing.B) {
			b.Helper()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := reconciler.Reconcile(context.Background(), reconcile.Request{}); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("reference", run(&counter{}))
	for name, provider := range providers() {
		b.Run(name, run(tracing.Reconciler(&counter{}, provider, "pass")))
	}
}
