// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing makes OpenTelemetry's traces of a program and sends them to a
// collector. Nothing of it is the state of a package: who traces is given a
// provider, and a nil one stands for no traces, at no cost.
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

// scope is by whom spans say that they were made.
const scope = "opendilab.org/di-orchestrator"

// exportTime bounds how long one attempt to send spans takes, and retryTime how
// long the same spans are tried. What is recorded meanwhile waits in a queue of
// fixed length, and is dropped where that is full: nobody waits for a collector.
const (
	exportTime = 5 * time.Second
	retryTime  = 20 * time.Second
)

// Options say what is traced and where to.
type Options struct {
	// Endpoint is the URL of a collector that takes OTLP over gRPC. Where it is
	// empty, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT is it.
	Endpoint string
	// Ratio is which part of the traces that begin here is recorded, from 0 to 1. Of
	// those that began elsewhere, who began them has decided.
	Ratio float64
	// Program and Version say who records.
	Program, Version string
}

// New returns a provider whose spans are sent in the background. Shut it down
// to send the last ones. It connects to nobody yet, so it does not fail where
// the collector is not there.
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

// resource returns what all spans say of their program. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES win.
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

// propagator reads and writes W3C's traceparent, as the API server does.
func propagator() propagation.TextMapPropagator {
	return propagation.TraceContext{}
}
