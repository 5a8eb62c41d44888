// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/internal/tracing"
)

// flushTime bounds how long a stopping process sends its last spans. The sum of flushTime and
// stopTimeout is less than the pods' terminationGracePeriodSeconds.
const flushTime = 3 * time.Second

// The environment variables of OpenTelemetry that name the collector, beside common.tracing.endpoint.
// The exporter itself reads the remaining variables, such as headers and certificates.
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// protocol is the protocol that sends traces.
const protocol = "grpc"

// observers record the metrics and traces of a program.
type observers struct {
	// metrics registers metrics.
	metrics prometheus.Registerer
	// traces creates spans; nil if traces are off.
	traces trace.TracerProvider
}

// wrap propagates traces to calls to the API server.
func (o *observers) wrap(config *rest.Config) {
	if wrap := tracing.Transport(o.traces); wrap != nil {
		config.Wrap(wrap)
	}
}

// checkProtocol returns an error if the environment wants a protocol by which no trace could be exported.
func checkProtocol(config *configv1alpha1.Tracing) error {
	for _, variable := range []string{protocolVariable, tracesProtocolVariable} {
		if value := os.Getenv(variable); collectorOf(config) != "" && value != "" && value != protocol {
			return fmt.Errorf("%s %q: want %s, the only protocol by which traces are sent", variable, value, protocol)
		}
	}
	return nil
}

// collectorOf returns the endpoint of the collector, "" if there is none: then traces are off.
func collectorOf(config *configv1alpha1.Tracing) string {
	return cmp.Or(config.Endpoint, os.Getenv(tracesEndpointVariable), os.Getenv(endpointVariable))
}

// build is a program and its version.
type build struct{ program, version string }

// withTraces runs a program with its tracer provider, nil if traces are off, and then flushes the last spans.
func withTraces(ctx context.Context, config *configv1alpha1.Tracing, of build, log logr.Logger, run func(trace.TracerProvider) error) error {
	endpoint := collectorOf(config)
	if endpoint == "" {
		return run(nil)
	}
	log = log.WithName("tracing")
	otel.SetErrorHandler(&tracing.Complaints{Log: log, Clock: clock.RealClock{}})
	otel.SetLogger(log)
	provider, err := tracing.New(ctx, tracing.Options{Endpoint: config.Endpoint, Ratio: config.SamplingRatio, Program: of.program, Version: of.version})
	if err != nil {
		return err
	}
	log.Info("Exporting traces", "endpoint", endpoint, "samplingRatio", config.SamplingRatio)
	defer flush(ctx, provider, log)
	return run(provider)
}

// flush sends the last spans. An unreachable collector is not an error of the program.
func flush(ctx context.Context, provider *sdktrace.TracerProvider, log logr.Logger) {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := provider.Shutdown(stopping); err != nil {
		log.Info("Dropped the last traces", "reason", err.Error())
	}
}
