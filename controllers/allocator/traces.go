// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// spanOfRound is the name of the spans of rounds.
const spanOfRound = "allocator round"

// The attributes of a round's span.
const (
	nodesKey = attribute.Key("di.allocator.nodes")
	jobsKey  = attribute.Key("di.allocator.jobs.")
)

// traceRound adds the number of nodes, and the number of jobs in each state, to the span of a round.
func traceRound(ctx context.Context, nodes int, states map[string]int) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(nodesKey.Int(nodes))
	for state, count := range states {
		span.SetAttributes(attribute.Int(string(jobsKey)+state, count))
	}
}
