// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// RequeueKey is the attribute of the seconds until the requested next reconcile.
const RequeueKey = attribute.Key("di.requeue_after_s")

// LogTraceID is the key of the trace ID in log lines.
const LogTraceID = "trace_id"

// Reconciler creates a span for each reconcile. Without a provider it returns the
// reconciler itself.
func Reconciler(next reconcile.Reconciler, provider trace.TracerProvider, name string) reconcile.Reconciler {
	if provider == nil {
		return next
	}
	return &tracedReconciler{next: next, tracer: provider.Tracer(scope), name: name}
}

type tracedReconciler struct {
	next   reconcile.Reconciler
	tracer trace.Tracer
	name   string
}

// Reconcile implements reconcile.Reconciler.
func (r *tracedReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, span := r.tracer.Start(ctx, r.name)
	defer span.End()
	if span.IsRecording() && request.Namespace != "" {
		span.SetAttributes(semconv.K8SNamespaceName(request.Namespace), JobNameKey.String(request.Name))
	}
	if of := LogTrace(ctx); of != nil {
		ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues(of...))
	}
	result, err := r.next.Reconcile(ctx, request)
	span.SetAttributes(RequeueKey.Float64(result.RequeueAfter.Truncate(time.Millisecond).Seconds()))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return result, err
}

// LogTrace returns the key and value of the trace ID for log lines, or none if the
// trace is not sampled.
func LogTrace(ctx context.Context) []any {
	of := trace.SpanContextFromContext(ctx)
	if !of.IsSampled() {
		return nil
	}
	return []any{LogTraceID, of.TraceID().String()}
}

// AboutJob records the job in the span of a context.
func AboutJob(ctx context.Context, job *v2alpha1.DIJob) {
	span := trace.SpanFromContext(ctx)
	if job == nil || !span.IsRecording() {
		return
	}
	span.SetAttributes(
		semconv.K8SNamespaceName(job.Namespace), JobNameKey.String(job.Name),
		JobUIDKey.String(string(job.UID)), JobLifecycleKey.String(string(cmp.Or(job.Spec.Lifecycle, v2alpha1.LifecycleWorkerLed))),
	)
}
