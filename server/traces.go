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
)

// isNoProbe reports whether a request is worth a span.
func isNoProbe(request *http.Request) bool {
	return !strings.HasSuffix(request.URL.Path, "/healthz")
}

// traceBegun names the span of a request by its route, so that spans of all
// jobs have the same.
func traceBegun(c *gin.Context) {
	span := trace.SpanFromContext(c.Request.Context())
	if route := c.FullPath(); route != "" && span.IsRecording() {
		span.SetName(c.Request.Method + " " + route)
		span.SetAttributes(semconv.HTTPRoute(route))
	}
}

// traceEnded lets the span of a request say which job it is about, and that it
// was not done, if so.
func traceEnded(c *gin.Context, code string) {
	ctx := c.Request.Context()
	if matter, found := ctx.Value(matterKey{}).(*subjectMatter); found {
		tracing.AboutJob(ctx, matter.job)
	}
	if code == codeLater || code == codeFault {
		trace.SpanFromContext(ctx).SetStatus(otelcodes.Error, code)
	}
}
