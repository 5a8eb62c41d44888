// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/internal/tracing"
)

// flushTime bounds how long a stopping process sends its last spans. The sum of flushTime and
// stopTimeout is less than the pods' terminationGracePeriodSeconds.
const flushTime = 3 * time.Second

// The environment variables of OpenTelemetry that name the collector, beside tracingEndpointFlag.
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

// traceOptions configure which traces are recorded and where they are sent.
type traceOptions struct {
	endpoint string
	ratio    float64
}

func (o *traceOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.endpoint, "tracing-endpoint", "",
		"URL of an OpenTelemetry collector for traces (OTLP over gRPC), such as http://collector.monitoring:4317; "+
			"by default the value of "+tracesEndpointVariable+" or "+endpointVariable+"; without any, traces are off")
	flags.Float64Var(&o.ratio, "tracing-sampling-ratio", 1,
		"ratio of traces that are recorded, from 0 to 1; the API server decides for the traces that it starts")
}

// validate returns an error for options that could never export a trace.
func (o *traceOptions) validate() error {
	if o.endpoint != "" {
		parsed, err := url.Parse(o.endpoint)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.Path != "" && parsed.Path != "/" {
			return fmt.Errorf("--tracing-endpoint %q: want http://host:port, or https://host:port for TLS, of a collector that takes OTLP over gRPC", o.endpoint)
		}
	}
	if !(o.ratio >= 0 && o.ratio <= 1) {
		return fmt.Errorf("--tracing-sampling-ratio %v: want a number from 0, for none of the traces that begin here, to 1, for all", o.ratio)
	}
	for _, variable := range []string{protocolVariable, tracesProtocolVariable} {
		if value := os.Getenv(variable); o.enabled() && value != "" && value != protocol {
			return fmt.Errorf("%s %q: want %s, the only protocol by which traces are sent", variable, value, protocol)
		}
	}
	return nil
}

// enabled reports whether traces are exported.
func (o *traceOptions) enabled() bool {
	return o.target() != ""
}

// target returns the endpoint of the collector, "" if there is none.
func (o *traceOptions) target() string {
	return cmp.Or(o.endpoint, os.Getenv(tracesEndpointVariable), os.Getenv(endpointVariable))
}

// traced runs a program, in a version, with its tracer provider, nil if traces are off, and then flushes the last
// spans.
func (o *traceOptions) traced(ctx context.Context, program, version string, log logr.Logger, run func(trace.TracerProvider) error) error {
	if !o.enabled() {
		return run(nil)
	}
	log = log.WithName("tracing")
	otel.SetErrorHandler(&tracing.Complaints{Log: log, Clock: clock.RealClock{}})
	otel.SetLogger(log)
	provider, err := tracing.New(ctx, tracing.Options{Endpoint: o.endpoint, Ratio: o.ratio, Program: program, Version: version})
	if err != nil {
		return err
	}
	log.Info("Exporting traces", "endpoint", o.target(), "samplingRatio", o.ratio)
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
