// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/internal/telemetry"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/store"
)

const (
	// unknownRoute labels all paths without a route.
	unknownRoute = "unknown"
	// failureKey is the key of a request's failure.Kind in its gin context.
	failureKey = "diengine.opendilab.org/failure"
)

// requestMetrics counts requests.
type requestMetrics struct {
	telemetry.Set
	log      logr.Logger
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	held     *prometheus.GaugeVec
	heldEver *prometheus.CounterVec
}

// newRequestMetrics returns metrics of the routes. It registers them if the registerer is not nil.
func newRequestMetrics(options Options, routes []string) (*requestMetrics, error) {
	r := &requestMetrics{log: options.Log}
	route := telemetry.Label{Name: "route", Values: append(routes, unknownRoute)}
	method := telemetry.Label{Name: "method", Values: []string{http.MethodGet, http.MethodPost, http.MethodDelete, telemetry.Other}}
	r.total = r.Counter(telemetry.Metric{
		Name: "di_orchestrator_server_requests_total", Unit: "requests",
		Help:   "Requests by route, method and response code. Codes later and fault are responses with status 200 and success false: later may succeed on retry, fault is an error of di-server or of the job's templates.",
		Labels: []telemetry.Label{route, method, {Name: "code", Values: codes()}},
	})
	r.duration = r.Histogram(telemetry.Metric{
		Name: "di_orchestrator_server_request_duration_seconds", Unit: "seconds",
		Help:   "Time from reading a request to its response, by route and method.",
		Labels: []telemetry.Label{route, method},
	}, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	r.inFlight = r.Gauge(telemetry.Metric{
		Name: "di_orchestrator_server_requests_in_flight", Help: "Requests in flight: read and not yet answered.", Unit: "requests",
	})
	r.held = r.Gauge(telemetry.Metric{
		Name: "di_orchestrator_server_requests_held", Unit: "requests",
		Help: "Requests that wait because a watch of the API server is broken, or was until just now.",
	})
	r.heldEver = r.Counter(telemetry.Metric{
		Name: "di_orchestrator_server_requests_held_total", Unit: "requests",
		Help: "Requests that waited because a watch of the API server was broken, or had been until just then.",
	})
	r.readWatches(options.Watches)
	if options.Metrics == nil {
		return r, nil
	}
	if err := options.Metrics.Register(r); err != nil {
		return nil, fmt.Errorf("registering the metrics of requests: %w", err)
	}
	return r, nil
}

func (r *requestMetrics) readWatches(watches *store.Watches) {
	r.Read(telemetry.Metric{
		Name: "di_orchestrator_server_watch_open", Unit: "none",
		Help:   "Whether the watch of a resource is open, so that the cache is current: 1 for yes, 0 for no.",
		Labels: []telemetry.Label{{Name: "resource", Values: store.WatchedResources()}},
	}, func(set telemetry.Tell) error {
		for resource, open := range watches.State() {
			value := 0.0
			if open {
				value = 1
			}
			set(value, resource)
		}
		return nil
	})
}

// codes returns all values of the label code.
func codes() []string {
	all := []string{strconv.Itoa(http.StatusOK)}
	for _, kind := range failure.Kinds() {
		all = append(all, kind.Code())
	}
	return all
}

// paths returns the path templates of an engine's routes without duplicates.
func paths(engine *gin.Engine) []string {
	var all []string
	for _, route := range engine.Routes() {
		all = append(all, route.Path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// answeredCode returns the label code of an answer.
func answeredCode(c *gin.Context) string {
	if kind, failed := c.Value(failureKey).(failure.Kind); failed {
		return kind.Code()
	}
	return strconv.Itoa(c.Writer.Status())
}

func (r *requestMetrics) ended(c *gin.Context, code string, took time.Duration) {
	route := c.FullPath()
	if route == "" {
		route = unknownRoute
	}
	r.total.WithLabelValues(route, c.Request.Method, code).Inc()
	r.duration.WithLabelValues(route, c.Request.Method).Observe(took.Seconds())
	log := r.log.V(1)
	if !log.Enabled() {
		return
	}
	ctx := c.Request.Context()
	sender := auth.SenderOf(ctx)
	log.WithValues(auth.LogJob(ctx)...).Info("Request", "route", route, "method", loggable(c.Request.Method), "code", code,
		"duration", took.String(), "caller", loggable(sender.String()), "identity", sender.Identity())
}
