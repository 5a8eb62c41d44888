// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// The results of rounds, and the decisions about jobs.
const (
	roundDone   = "done"
	roundFailed = "failed"

	decisionPlaced   = "placed"
	decisionMoved    = "moved"
	decisionResized  = "resized"
	decisionReleased = "released"

	statePlaced  = "placed"
	statePartial = "partial"
	stateWaiting = "waiting"

	nodeOpen   = "open"
	nodeClosed = "closed"
)

// roundMetrics are the metrics of allocation rounds.
type roundMetrics struct {
	telemetry.Set
	rounds    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	decisions *prometheus.CounterVec
	jobs      *prometheus.GaugeVec
	nodes     *prometheus.GaugeVec
	// restarts are the measured restarts, unreadable the jobs whose reports became unreadable.
	restarts   *prometheus.HistogramVec
	unreadable *prometheus.CounterVec
	tenants    tenantMetric
}

func newRoundMetrics(registerer prometheus.Registerer, policy string, tenants []shares.Tenant) (*roundMetrics, error) {
	m := &roundMetrics{}
	m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_allocator_policy_info", Unit: "none",
		Help:   "Always 1; the label has the policy that places jobs.",
		Labels: []telemetry.Label{{Name: "policy", Values: []string{policy}, About: "the name of the policy"}},
	}).WithLabelValues(policy).Set(1)
	m.rounds = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_allocator_rounds_total", Unit: "rounds",
		Help:   "Allocation rounds, by whether all reads and writes succeeded.",
		Labels: []telemetry.Label{{Name: "result", Values: []string{roundDone, roundFailed}}},
	})
	m.duration = m.Histogram(telemetry.Metric{
		Name: "di_orchestrator_allocator_round_duration_seconds", Unit: "seconds",
		Help: "Duration of an allocation round, including its writes.",
	}, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)
	m.decisions = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_allocator_decisions_total", Unit: "decisions",
		Help:   "Placements that were written: a job was placed, moved, resized, or its placement was released.",
		Labels: []telemetry.Label{{Name: "decision", Values: []string{decisionPlaced, decisionMoved, decisionResized, decisionReleased}}},
	})
	m.jobs = m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_allocator_jobs", Unit: "jobs",
		Help:   "Preemptible jobs by state after the last allocation round: placed completely, partially, or waiting for capacity.",
		Labels: []telemetry.Label{{Name: "state", Values: []string{statePlaced, statePartial, stateWaiting}}},
	})
	m.nodes = m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_allocator_nodes", Unit: "nodes",
		Help:   "Nodes in the last allocation round, by whether they accept pods: closed nodes are cordoned or not ready.",
		Labels: []telemetry.Label{{Name: "state", Values: []string{nodeOpen, nodeClosed}}},
	})
	m.restarts = m.Histogram(telemetry.Metric{
		Name: "di_orchestrator_allocator_restart_duration_seconds", Unit: "seconds",
		Help: "Duration of a job's restart by a changed placement, until its replicas are ready or it reports again.",
	}, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
	m.unreadable = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_allocator_unreadable_reports_total", Unit: "reports",
		Help: "Jobs whose reports became unreadable, so that the allocator ignores them.",
	})
	m.tenants.add(&m.Set, tenants)
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the allocator's metrics: %w", err)
	}
	return m, nil
}

// observeRound observes a finished round.
func (m *roundMetrics) observeRound(took time.Duration, err error) {
	result := roundDone
	if err != nil {
		result = roundFailed
	}
	m.rounds.WithLabelValues(result).Inc()
	m.duration.WithLabelValues().Observe(took.Seconds())
}

// observeDecision counts a placement that was written.
func (m *roundMetrics) observeDecision(decision string) {
	if decision != "" {
		m.decisions.WithLabelValues(decision).Inc()
	}
}

// observeState sets the numbers of jobs and nodes after a round.
func (m *roundMetrics) observeState(jobs map[string]int, nodes []*allocation.Node) {
	for _, state := range []string{statePlaced, statePartial, stateWaiting} {
		m.jobs.WithLabelValues(state).Set(float64(jobs[state]))
	}
	closed := 0
	for _, node := range nodes {
		if node.Closed {
			closed++
		}
	}
	m.nodes.WithLabelValues(nodeOpen).Set(float64(len(nodes) - closed))
	m.nodes.WithLabelValues(nodeClosed).Set(float64(closed))
}

// decisionOf returns the decision that a change of allocation represents; "" for none.
func decisionOf(before, after []string) string {
	switch {
	case len(before) == 0 && len(after) == 0:
		return ""
	case len(before) == 0:
		return decisionPlaced
	case len(after) == 0:
		return decisionReleased
	case len(before) != len(after):
		return decisionResized
	}
	return decisionMoved
}

// stateOf returns the state of a job according to its status.
func stateOf(job *v2alpha1.DIJob) string {
	if len(job.Status.Allocation) == 0 {
		return stateWaiting
	}
	if allocated := conditions.Find(&job.Status, v2alpha1.ConditionAllocated); allocated != nil && allocated.Reason == v2alpha1.ReasonPartiallyPlaced {
		return statePartial
	}
	return statePlaced
}
