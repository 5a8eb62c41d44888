// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// Step is a step whose failures are counted.
type Step string

// The steps.
const (
	StepOpen    Step = "open"
	StepCompare Step = "compare"
	StepRecord  Step = "record"
	StepUpkeep  Step = "upkeep"
	StepGroups  Step = "groups"
)

// The results for a job that cannot be recorded as it is.
const (
	resultReduced = "reduced"
	resultDropped = "dropped"
)

// Metrics are those of recording. Only the leader reports what waits and what the database has.
type Metrics struct {
	telemetry.Set
	written  *prometheus.CounterVec
	failures *prometheus.CounterVec
	refused  *prometheus.CounterVec
	removed  *prometheus.CounterVec
	// queue and totals are nil until there are any.
	queue  atomic.Pointer[queue]
	totals atomic.Pointer[store.Totals]
}

// NewMetrics returns metrics that the registerer has.
func NewMetrics(registerer prometheus.Registerer, limits store.Limits) (*Metrics, error) {
	m := &Metrics{}
	m.written = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_history_writes_total", Unit: "changes", Help: "Changes of jobs that were recorded; several of one job within a second count once.",
	})
	m.failures = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_history_failures_total", Unit: "attempts",
		Help:   "Attempts that failed and are repeated, by step: opening the database, comparing it with what exists, recording changes, keeping the limits, or keeping the groups of the allocator.",
		Labels: []telemetry.Label{{Name: "step", Values: []string{string(StepOpen), string(StepCompare), string(StepRecord), string(StepUpkeep), string(StepGroups)}}},
	})
	m.refused = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_history_refused_jobs_total", Unit: "jobs",
		Help:   "Jobs that the database refuses, by result: reduced to their times and reasons, or dropped, for each change.",
		Labels: []telemetry.Label{{Name: "result", Values: []string{resultReduced, resultDropped}}},
	})
	m.removed = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_history_removed_jobs_total", Unit: "jobs", Help: "Jobs that were removed because they are beyond history.keepFor, keepJobs or keepBytes.",
	})
	m.readQueue()
	m.readTotals(limits)
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of recording: %w", err)
	}
	return m, nil
}

// waiting returns what waits, for the log.
func (m *Metrics) waiting() []any {
	queue := m.queue.Load()
	if queue == nil {
		return nil
	}
	waiting, lag := queue.state()
	return []any{"waiting", waiting, "lag", lag.String()}
}

func (m *Metrics) readQueue() {
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_history_waiting_jobs", Unit: "jobs", Help: "Jobs with changes that are not recorded yet; only the leader reports it.",
	}, func(tell telemetry.Tell) error {
		if queue := m.queue.Load(); queue != nil {
			waiting, _ := queue.state()
			tell(float64(waiting))
		}
		return nil
	})
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_history_lag_seconds", Unit: "seconds", Help: "Age of the oldest change that is not recorded yet; only the leader reports it.",
	}, func(tell telemetry.Tell) error {
		if queue := m.queue.Load(); queue != nil {
			_, lag := queue.state()
			tell(lag.Seconds())
		}
		return nil
	})
}

// readTotals reports the totals that the upkeep last read.
func (m *Metrics) readTotals(limits store.Limits) {
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_history_jobs", Unit: "jobs", Help: "Jobs that are recorded; only the leader reports it.",
	}, func(tell telemetry.Tell) error {
		if totals := m.totals.Load(); totals != nil {
			tell(float64(totals.Jobs))
		}
		return nil
	})
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_history_database_bytes", Unit: "bytes", Help: "Size of what is recorded, as history.keepBytes counts it; only the leader reports it.",
	}, func(tell telemetry.Tell) error {
		if totals := m.totals.Load(); totals != nil {
			tell(float64(totals.Bytes))
		}
		return nil
	})
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_history_database_limit_bytes", Unit: "bytes", Help: "The setting history.keepBytes; absent without a limit.",
	}, func(tell telemetry.Tell) error {
		if limits.Bytes > 0 {
			tell(float64(limits.Bytes))
		}
		return nil
	})
}
