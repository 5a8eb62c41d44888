// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector receives traces by OTLP over gRPC, as the OpenTelemetry collector does.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer

	// Endpoint is its URL.
	Endpoint string

	server *grpc.Server
	lock   sync.Mutex
	spans  []*Span
}

// Span is a span that the collector received.
type Span struct {
	*tracev1.Span
	// Service is the program that sent the span.
	Service string
	// Attributes are the span's attributes by key.
	Attributes map[string]any
}

// StartCollector starts a collector. The caller stops it.
func StartCollector(ctx context.Context) (*Collector, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for traces: %w", err)
	}
	c := &Collector{Endpoint: "http://" + listener.Addr().String(), server: grpc.NewServer()}
	collectorv1.RegisterTraceServiceServer(c.server, c)
	go func() {
		// Serve returns an error when the server is stopped. It is expected.
		_ = c.server.Serve(listener)
	}()
	return c, nil
}

// Stop stops the collector.
func (c *Collector) Stop() {
	c.server.Stop()
}

// Export implements the OTLP service.
func (c *Collector) Export(_ context.Context, sent *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, of := range sent.GetResourceSpans() {
		service, _ := plain(of.GetResource().GetAttributes())["service.name"].(string)
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, &Span{Span: span, Service: service, Attributes: plain(span.GetAttributes())})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// Spans returns the received spans that the filter accepts.
func (c *Collector) Spans(wanted func(*Span) bool) []*Span {
	c.lock.Lock()
	spans := slices.Clone(c.spans)
	c.lock.Unlock()
	var found []*Span
	for _, span := range spans {
		if wanted(span) {
			found = append(found, span)
		}
	}
	return found
}

// plain converts attributes to Go values.
func plain(attributes []*commonv1.KeyValue) map[string]any {
	values := map[string]any{}
	for _, attribute := range attributes {
		switch value := attribute.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			values[attribute.GetKey()] = value.StringValue
		case *commonv1.AnyValue_IntValue:
			values[attribute.GetKey()] = value.IntValue
		case *commonv1.AnyValue_DoubleValue:
			values[attribute.GetKey()] = value.DoubleValue
		case *commonv1.AnyValue_BoolValue:
			values[attribute.GetKey()] = value.BoolValue
		}
	}
	return values
}
