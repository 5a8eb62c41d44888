// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// autoscalerMetrics count decisions and resizes. They have no label of a job: the status of the job has its figures.
type autoscalerMetrics struct {
	telemetry.Set
	decisions *prometheus.CounterVec
	resizes   *prometheus.CounterVec
}

// conditionReasons returns the reasons of condition Autoscaling.
func conditionReasons() []string {
	return []string{
		v2alpha1.ReasonFollowing, v2alpha1.ReasonAdvising, v2alpha1.ReasonWaitingForReports, v2alpha1.ReasonOtherMaster, v2alpha1.ReasonInvalidRule,
		v2alpha1.ReasonResizeRefused, ratio.LimitRange, ratio.LimitStaleness,
	}
}

func newAutoscalerMetrics(registerer prometheus.Registerer) (*autoscalerMetrics, error) {
	m := &autoscalerMetrics{}
	m.decisions = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_autoscaler_decisions_total", Unit: "decisions",
		Help:   "Decisions of the ratio rule about jobs, by the reason of condition Autoscaling.",
		Labels: []telemetry.Label{{Name: "reason", Values: conditionReasons()}},
	})
	m.resizes = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_autoscaler_resizes_total", Unit: "resizes",
		Help:   "Resizes by the ratio rule, by reason: more producers (Grown), fewer (Shrunk), other pools (Moved), or other bounds (AtBounds).",
		Labels: []telemetry.Label{{Name: "reason", Values: []string{ratio.ReasonGrown, ratio.ReasonShrunk, ratio.ReasonMoved, ratio.ReasonAtBounds}}},
	})
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the autoscaler's metrics: %w", err)
	}
	return m, nil
}
