// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// What becomes of the reports of jobs.
const (
	reportWritten   = "written"
	reportCoalesced = "coalesced"
	reportUnchanged = "unchanged"
	reportFailed    = "failed"
)

// bounds counts what the bounds of the server keep back.
type bounds struct {
	telemetry.Set
	reports    *prometheus.CounterVec
	overBudget *prometheus.CounterVec
	refused    *prometheus.CounterVec
}

// newBounds returns what counts; the registerer, if there is one, has its metrics.
func newBounds(registerer prometheus.Registerer) (*bounds, error) {
	b := &bounds{}
	b.reports = b.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_server_profilings_total", Unit: "reports",
		Help: "What jobs report of themselves, by what becomes of it: written, coalesced for a newer report that came before it was written, " +
			"unchanged as the job says the same already, or failed to be written, each time.",
		Labels: []telemetry.Label{{Name: "outcome", Values: []string{reportWritten, reportCoalesced, reportUnchanged, reportFailed}}},
	})
	b.overBudget = b.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_server_writes_over_budget_total", Unit: "writes",
		Help: "Writes that had to wait as more bytes were written for their job than one may have a minute.",
	})
	b.refused = b.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_server_refused_total", Unit: "none",
		Help: "Connections that were closed as there were too many, and bodies that were not read to their end, by reason: connections, " +
			"slow for a body that came too slowly, shed for one that gave up its room to others, room for one that found none in time, size for one too large.",
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

func (b *bounds) report(outcome string) {
	b.reports.WithLabelValues(outcome).Inc()
}

func (b *bounds) waitsForBudget() {
	b.overBudget.WithLabelValues().Inc()
}

func (b *bounds) connectionRefused() {
	b.refused.WithLabelValues(netlimit.ReasonConnections).Inc()
}

// bodyEnded counts a body that was not read to its end. One that its sender broke off
// is refused nothing.
func (b *bounds) bodyEnded(err error) {
	if reason := netlimit.ReasonOf(err); reason != "" {
		b.refused.WithLabelValues(reason).Inc()
	}
}
