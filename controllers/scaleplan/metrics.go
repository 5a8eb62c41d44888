// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleplan

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// planMetrics are the metrics of ScalePlans.
type planMetrics struct {
	telemetry.Set
	finished *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*planMetrics, error) {
	m := &planMetrics{}
	m.finished = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_scaleplans_finished_total", Unit: "plans",
		Help: "Finished ScalePlans, by their last phase and what created them.",
		Labels: []telemetry.Label{
			{Name: "phase", Values: []string{
				string(v2alpha1.PlanSucceeded), string(v2alpha1.PlanFailed), string(v2alpha1.PlanSuperseded), string(v2alpha1.PlanRefused),
			}},
			{Name: "origin", Values: []string{string(v2alpha1.PlanManual), string(v2alpha1.PlanOptimizer)}},
		},
	})
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of ScalePlans: %w", err)
	}
	return m, nil
}
