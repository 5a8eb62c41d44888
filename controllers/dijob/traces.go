// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/tracing"
)

// spanOfPass is the name of the spans of passes.
const spanOfPass = "reconcile dijob"

// The keys of what spans say of passes over jobs.
const (
	phaseBeforeKey   = attribute.Key("di.job.phase.before")
	phaseAfterKey    = attribute.Key("di.job.phase.after")
	podsKey          = attribute.Key("di.job.pods")
	statusWrittenKey = attribute.Key("di.status_written")
)

// traceReconcile adds the result of a reconcile to its span.
func traceReconcile(ctx context.Context, observed *lifecycle.Observed, outcome *lifecycle.Outcome, committed bool) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	tracing.AboutJob(ctx, observed.Job)
	after := outcome.Status.Phase
	if !committed {
		after = observed.Job.Status.Phase
	}
	span.SetAttributes(
		phaseBeforeKey.String(string(observed.Job.Status.Phase)), phaseAfterKey.String(string(after)),
		podsKey.Int(len(observed.Pods)), statusWrittenKey.Bool(committed),
	)
}
