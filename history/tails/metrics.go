// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tails

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/internal/telemetry"
)

// The results of reading a tail.
const (
	resultRead = "read"
	resultLost = "lost"
)

// Metrics count tails.
type Metrics struct {
	telemetry.Set
	tails *prometheus.CounterVec
}

// NewMetrics returns metrics that the registerer has.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	m.tails = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_history_tails_total", Unit: "tails",
		Help:   "Last lines of containers that ended badly, by result: read, or lost because their pod or its kubelet was gone.",
		Labels: []telemetry.Label{{Name: "result", Values: []string{resultRead, resultLost}}},
	})
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of tails: %w", err)
	}
	return m, nil
}
