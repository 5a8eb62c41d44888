// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// The outcomes of requests.
const (
	outcomeServed       = "served"
	outcomeUnauthorized = "unauthorized"
	outcomeForbidden    = "forbidden"
	outcomeHidden       = "hidden"
	outcomeMissing      = "missing"
	outcomeInvalid      = "invalid"
	outcomeFailed       = "failed"
)

// errHidden marks the answer that a job does not exist because the caller may not read it.
var errHidden = errors.New("the caller may not read it")

// Metrics count and time requests.
type Metrics struct {
	telemetry.Set
	clock    clock.PassiveClock
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewMetrics returns metrics that the registerer has.
func NewMetrics(registerer prometheus.Registerer, clock clock.PassiveClock) (*Metrics, error) {
	m := &Metrics{clock: clock}
	path := telemetry.Label{Name: "path", Values: []string{pathList, pathJob, pathSeries, pathTails, record.PathSums, record.PathGroups, remote.Path}}
	m.total = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_history_requests_total", Unit: "requests",
		Help: "Requests to the history, by path and outcome: served, without a valid token (unauthorized), without the right to list (forbidden) or to read (hidden), of no such job (missing), invalid, or failed.",
		Labels: []telemetry.Label{path, {Name: "outcome", Values: []string{
			outcomeServed, outcomeUnauthorized, outcomeForbidden, outcomeHidden, outcomeMissing, outcomeInvalid, outcomeFailed,
		}}},
	})
	m.duration = m.Histogram(telemetry.Metric{
		Name: "di_orchestrator_history_request_duration_seconds", Unit: "seconds",
		Help: "Time to answer a request to the history, by path.", Labels: []telemetry.Label{path},
	}, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of requests: %w", err)
	}
	return m, nil
}

func (m *Metrics) answered(path string, code int, err error, started time.Time) {
	m.total.WithLabelValues(path, outcomeOf(code, err)).Inc()
	m.duration.WithLabelValues(path).Observe(m.clock.Since(started).Seconds())
}

func outcomeOf(code int, err error) string {
	switch {
	case errors.Is(err, errHidden):
		return outcomeHidden
	case code == http.StatusOK:
		return outcomeServed
	case code == http.StatusUnauthorized:
		return outcomeUnauthorized
	case code == http.StatusForbidden:
		return outcomeForbidden
	case code == http.StatusNotFound:
		return outcomeMissing
	case code < http.StatusInternalServerError:
		return outcomeInvalid
	}
	return outcomeFailed
}
