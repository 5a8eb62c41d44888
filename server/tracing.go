// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	otelcodes "go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
)

// isNoProbe reports whether a request is not a probe. Probes get no span.
func isNoProbe(request *http.Request) bool {
	return !strings.HasSuffix(request.URL.Path, "/healthz")
}

// startTrace names the span of a request after its route, which is the same for all jobs.
func startTrace(c *gin.Context) {
	span := trace.SpanFromContext(c.Request.Context())
	if route := c.FullPath(); route != "" && span.IsRecording() {
		span.SetName(c.Request.Method + " " + route)
		span.SetAttributes(semconv.HTTPRoute(route))
	}
}

// endTrace adds the job of a request to its span, and the error if it failed.
func endTrace(c *gin.Context, code string) {
	ctx := c.Request.Context()
	tracing.AboutJob(ctx, auth.RequestedJob(ctx))
	if code == failure.CodeLater || code == failure.CodeFault {
		trace.SpanFromContext(ctx).SetStatus(otelcodes.Error, code)
	}
}
