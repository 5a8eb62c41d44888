// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing records OpenTelemetry traces of a program and sends them to a
// collector. It has no package-level state: callers pass a provider, and nil means
// no traces, at no cost.
package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// scope is the instrumentation scope of spans.
const scope = "opendilab.org/di-orchestrator"

// exportTime limits one attempt to send spans, and retryTime all attempts for the same spans. Spans
// that are recorded in the meantime wait in a queue of fixed length, and are dropped if it is full:
// no caller waits for a collector.
const (
	exportTime = 5 * time.Second
	retryTime  = 20 * time.Second
)

// Options configure what is traced, and the collector.
type Options struct {
	// Endpoint is the URL of a collector for OTLP over gRPC. If it is empty,
	// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT applies.
	Endpoint string
	// Ratio is the sampled fraction of the traces that start here, from 0 to 1. For
	// others, the program that started them decides.
	Ratio float64
	// Program and Version identify the recording program.
	Program, Version string
}

// New returns a provider that sends spans in the background. Shut it down to send
// the last ones. It opens no connection yet, so it does not fail without a
// collector.
func New(ctx context.Context, options Options) (*sdktrace.TracerProvider, error) {
	of, err := options.resource(ctx)
	if err != nil {
		return nil, err
	}
	settings := []otlptracegrpc.Option{
		otlptracegrpc.WithTimeout(exportTime),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: exportTime, MaxElapsedTime: retryTime,
		}),
	}
	if options.Endpoint != "" {
		settings = append(settings, otlptracegrpc.WithEndpointURL(options.Endpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, settings...)
	if err != nil {
		return nil, fmt.Errorf("making the exporter of traces: %w", err)
	}
	return sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(of),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(options.Ratio))),
	), nil
}

// resource returns the attributes of the program. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES override them.
func (o *Options) resource(ctx context.Context) (*resource.Resource, error) {
	of, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(semconv.ServiceName(o.Program), semconv.ServiceVersion(o.Version)),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("describing the program to a collector of traces, OTEL_RESOURCE_ATTRIBUTES included: %w", err)
	}
	return of, nil
}

// propagator reads and writes W3C's traceparent, like the API server.
func propagator() propagation.TextMapPropagator {
	return propagation.TraceContext{}
}
