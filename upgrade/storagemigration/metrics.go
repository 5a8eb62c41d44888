// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/internal/telemetry"
	"opendilab.org/di-orchestrator/upgrade/migration"
)

// The results of the writes of a migration.
const (
	writeDone     = "written"
	writeByOthers = "written-by-others"
	writeGone     = "gone"
	writeFailed   = "failed"
)

// The states of the objects of a migration.
const (
	objectsDone   = "done"
	objectsLeft   = "left"
	objectsFailed = "failed"
)

// Metrics are the metrics of storage migrations.
type Metrics struct {
	telemetry.Set
	pending *prometheus.GaugeVec
	blocked *prometheus.GaugeVec
	objects *prometheus.GaugeVec
	writes  *prometheus.CounterVec
}

// NewMetrics returns registered metrics.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	resource := telemetry.Label{Name: "resource", Values: []string{"dijobs", "aggregatorconfigs"}}
	m.pending = m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_migration_pending", Unit: "none", Labels: []telemetry.Label{resource},
		Help: "Whether objects may be stored or served in a version other than the desired one, by resource: 1 for yes, 0 for no; only the leader reports it.",
	})
	m.blocked = m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_migration_blocked", Unit: "none", Labels: []telemetry.Label{resource},
		Help: "Whether the storage migration waits for a user to act, by resource: 1 for yes, 0 for no; only the leader reports it.",
	})
	m.objects = m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_migration_objects", Unit: "objects",
		Labels: []telemetry.Label{resource, {Name: "state", Values: []string{objectsDone, objectsLeft, objectsFailed}}},
		Help:   "Objects of the current or last storage migration, by resource and state: done, left, or failed and retried.",
	})
	m.writes = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_migration_writes_total", Unit: "writes",
		Labels: []telemetry.Label{resource, {Name: "result", Values: []string{writeDone, writeByOthers, writeGone, writeFailed}}},
		Help:   "Writes of storage migrations, by resource and result: written, already written by another client, deleted meanwhile, or failed.",
	})
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of storage migrations: %w", err)
	}
	return m, nil
}

// observe sets the state of a migration.
func (m *Metrics) observe(o *migration.Observed, step migration.Step) {
	set := func(gauge *prometheus.GaugeVec, is bool) {
		value := 0.
		if is {
			value = 1
		}
		gauge.WithLabelValues(o.Resource).Set(value)
	}
	set(m.pending, step != migration.StepRest)
	set(m.blocked, step == migration.StepBlock)
	m.observeRecord(o.Resource, &o.Record)
}

func (m *Metrics) observeRecord(resource string, record *migration.Record) {
	failed := int64(len(record.Failed))
	for state, count := range map[string]int64{
		objectsDone: record.Done, objectsFailed: failed, objectsLeft: max(record.Total-record.Done-failed, 0),
	} {
		m.objects.WithLabelValues(resource, state).Set(float64(count))
	}
}

func (m *Metrics) wrote(resource, result string) {
	m.writes.WithLabelValues(resource, result).Inc()
}
