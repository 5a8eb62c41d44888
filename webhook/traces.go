// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/conversion"
)

// The attributes of conversion and admission spans.
const (
	objectsKey   = attribute.Key("di.conversion.objects")
	failedKey    = attribute.Key("di.conversion.failed")
	kindKey      = attribute.Key("di.admission.kind")
	versionKey   = attribute.Key("di.admission.version")
	nameKey      = attribute.Key("di.admission.name")
	operationKey = attribute.Key("di.admission.operation")
	resultKey    = attribute.Key("di.admission.result")
)

// every traces each request, because only the API server sends requests.
func every(*http.Request) bool { return true }

// traceReview records the outcome of a conversion review in its span.
func traceReview(ctx context.Context, outcome *conversion.Outcome) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	failed := 0
	for of, count := range outcome.Conversions {
		if of.Result == conversion.ResultFailed {
			failed += count
		}
	}
	span.SetAttributes(objectsKey.Int(outcome.Objects), failedKey.Int(failed))
	if failed > 0 {
		span.SetStatus(codes.Error, "not all objects convert")
	}
}

// traceQuestion records an admission request and its result in the request's span.
func traceQuestion(ctx context.Context, request *admission.Request, result string) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		semconv.K8SNamespaceName(request.Namespace), nameKey.String(request.Name),
		kindKey.String(request.Kind.Kind), versionKey.String(request.Kind.Version),
		operationKey.String(string(request.Operation)), resultKey.String(result),
	)
}
