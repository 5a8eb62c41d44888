// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/telemetry"
	"opendilab.org/di-orchestrator/internal/tracing"
)

const (
	// unknownRoute stands for all paths that are no route.
	unknownRoute = "unknown"
	// codeLater stands for the code of a request that could not be done now, and
	// codeFault of one that failed by no fault of its sender.
	codeLater, codeFault = "later", "fault"
	// failureKey is the key under which a request's context has the kind of its failure.
	failureKey = "diengine.opendilab.org/failure"
)

// requests counts requests, and logs each for those who debug.
type requests struct {
	telemetry.Set
	log      logr.Logger
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	held     *prometheus.GaugeVec
	heldEver *prometheus.CounterVec
}

// newRequests returns what counts requests of these routes; the registerer, if
// there is one, has its metrics.
func newRequests(registerer prometheus.Registerer, log logr.Logger, watches *Watches, routes []string) (*requests, error) {
	r := &requests{log: log}
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
	r.readWatches(watches)
	if registerer == nil {
		return r, nil
	}
	if err := registerer.Register(r); err != nil {
		return nil, fmt.Errorf("registering the metrics of requests: %w", err)
	}
	return r, nil
}

func (r *requests) readWatches(watches *Watches) {
	r.Read(telemetry.Metric{
		Name: "di_orchestrator_server_watch_open", Unit: "none",
		Help:   "Whether the watch of a resource is open, so that the cache is current: 1 for yes, 0 for no.",
		Labels: []telemetry.Label{{Name: "resource", Values: watchedResources()}},
	}, func(tell func(float64, ...string)) error {
		for resource, open := range watches.state() {
			value := 0.0
			if open {
				value = 1
			}
			tell(value, resource)
		}
		return nil
	})
}

// codes are all that a request may be answered with.
func codes() []string {
	all := []string{strconv.Itoa(http.StatusOK)}
	for _, kind := range []Kind{
		KindInvalid, KindUnauthenticated, KindForbidden, KindNotFound, KindConflict, KindNotImplemented, KindUnavailable, KindInternal,
	} {
		all = append(all, kind.code())
	}
	return all
}

// paths returns the templates of an engine's routes, each once.
func paths(engine *gin.Engine) []string {
	var all []string
	for _, route := range engine.Routes() {
		all = append(all, route.Path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// subjectMatter is what becomes known of a request while it is worked on.
type subjectMatter struct {
	// job is the job that it is about.
	job *v2alpha1.DIJob
}

// matterKey is the key under which the context of a request has its matter.
type matterKey struct{}

// isAbout notes the job that a request is about.
func isAbout(ctx context.Context, job *v2alpha1.DIJob) {
	if matter, found := ctx.Value(matterKey{}).(*subjectMatter); found {
		matter.job = job
	}
}

// logJob returns the keys and values by which a line tells the job of a
// request, while that is known, and its trace, if that is recorded.
func logJob(ctx context.Context) []any {
	matter, found := ctx.Value(matterKey{}).(*subjectMatter)
	of := tracing.LogTrace(ctx)
	if !found || matter.job == nil {
		return of
	}
	return append(names.LogWhole(matter.job), of...)
}

// observed counts a request once it is answered.
func (s *Server) observed(c *gin.Context) {
	began := s.options.Clock.Now()
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), matterKey{}, &subjectMatter{}))
	traceBegun(c)
	inFlight := s.requests.inFlight.WithLabelValues()
	inFlight.Inc()
	defer func() {
		inFlight.Dec()
		code := answeredCode(c)
		s.requests.ended(c, code, s.options.Clock.Now().Sub(began))
		traceEnded(c, code)
	}()
	c.Next()
}

// answeredCode returns the code by which an answer is counted.
func answeredCode(c *gin.Context) string {
	if kind, failed := c.Value(failureKey).(Kind); failed {
		return kind.code()
	}
	return strconv.Itoa(c.Writer.Status())
}

func (r *requests) ended(c *gin.Context, code string, took time.Duration) {
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
	sender := senderOf(ctx)
	log.WithValues(logJob(ctx)...).Info("Request", "route", route, "method", loggable(c.Request.Method), "code", code,
		"duration", took.String(), "caller", loggable(sender.String()), "identity", string(sender.by))
}

// hold lets a request wait while the cache that answers are made from may be
// behind what its sender has seen. A GET waits for less: its sender asks again.
func (s *Server) hold(c *gin.Context) error {
	if s.options.Watches.current() {
		return nil
	}
	s.requests.heldEver.WithLabelValues().Inc()
	held := s.requests.held.WithLabelValues()
	held.Inc()
	defer held.Dec()
	ctx := c.Request.Context()
	if c.Request.Method == http.MethodGet {
		bounded, cancel := context.WithTimeout(ctx, s.options.Times.Hold)
		defer cancel()
		ctx = bounded
	}
	return s.options.Watches.wait(ctx)
}
