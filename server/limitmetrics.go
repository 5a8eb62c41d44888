// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// The outcomes of profiling reports.
const (
	reportWritten   = "written"
	reportCoalesced = "coalesced"
	reportUnchanged = "unchanged"
	reportFailed    = "failed"
)

// limitMetrics counts the requests and writes that the server's limits delay, merge or refuse.
type limitMetrics struct {
	telemetry.Set
	reports    *prometheus.CounterVec
	overBudget *prometheus.CounterVec
	refused    *prometheus.CounterVec
}

// newLimitMetrics returns metrics. It registers them if the registerer is not nil.
func newLimitMetrics(registerer prometheus.Registerer) (*limitMetrics, error) {
	b := &limitMetrics{}
	b.reports = b.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_server_profilings_total", Unit: "reports",
		Help: "Profiling reports of jobs, by outcome: written, coalesced into a newer report, " +
			"unchanged, or failed, counted for every attempt.",
		Labels: []telemetry.Label{{Name: "outcome", Values: []string{reportWritten, reportCoalesced, reportUnchanged, reportFailed}}},
	})
	b.overBudget = b.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_server_writes_over_budget_total", Unit: "writes",
		Help: "Writes that waited for the byte rate limit of their job.",
	})
	b.refused = b.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_server_refused_total", Unit: "none",
		Help: "Closed connections and rejected bodies, by reason: connections (too many), " +
			"slow (body too slow), shed (body dropped in favour of others), room (no buffer in time), size (body too large).",
		Labels: []telemetry.Label{{Name: "reason", Values: []string{
			netlimit.ReasonConnections, netlimit.ReasonSlow, netlimit.ReasonShed, netlimit.ReasonRoom, netlimit.ReasonSize,
		}}},
	})
	if registerer == nil {
		return b, nil
	}
	if err := registerer.Register(b); err != nil {
		return nil, fmt.Errorf("registering the metrics of bounds: %w", err)
	}
	return b, nil
}

func (b *limitMetrics) report(outcome string) {
	b.reports.WithLabelValues(outcome).Inc()
}

func (b *limitMetrics) writeDelayed() {
	b.overBudget.WithLabelValues().Inc()
}

func (b *limitMetrics) connectionRefused() {
	b.refused.WithLabelValues(netlimit.ReasonConnections).Inc()
}

// bodyRefused counts a body that was not read to its end. It does not count bodies that their sender
// aborted.
func (b *limitMetrics) bodyRefused(err error) {
	if reason := netlimit.ReasonOf(err); reason != "" {
		b.refused.WithLabelValues(reason).Inc()
	}
}
