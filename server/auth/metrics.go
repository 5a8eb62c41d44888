// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/cache"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

const (
	decisionAllowed = "allowed"
	decisionRefused = "refused"

	// forbiddenInterval is the minimum time between two log lines about the same missing permission.
	forbiddenInterval = time.Minute
	// maxForbidden bounds the missing permissions that the server remembers.
	maxForbidden = 64
)

// Metrics counts and logs the decisions about calls.
type Metrics struct {
	telemetry.Set
	total *prometheus.CounterVec
	log   logr.Logger
	// forbidden records the missing permissions that were logged.
	forbidden *cache.LRUExpireCache
}

// NewMetrics returns metrics. It registers them if the registerer is not nil.
func NewMetrics(registerer prometheus.Registerer, log logr.Logger) (*Metrics, error) {
	m := &Metrics{log: log, forbidden: cache.NewLRUExpireCache(maxForbidden)}
	m.total = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_server_calls_total", Unit: "calls",
		Help: "Calls about jobs, by how their sender was authenticated (token, address, node, none) and whether they were allowed.",
		Labels: []telemetry.Label{
			{Name: "identity", Values: []string{string(byToken), string(byAddress), string(byNode), string(byNothing)}},
			{Name: "decision", Values: []string{decisionAllowed, decisionRefused}},
		},
	})
	if registerer == nil {
		return m, nil
	}
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of calls: %w", err)
	}
	return m, nil
}

// count counts a call.
func (m *Metrics) count(sender *Sender, allowed bool) {
	decision := decisionRefused
	if allowed {
		decision = decisionAllowed
	}
	m.total.WithLabelValues(string(sender.by), decision).Inc()
}

// warn logs that an unauthenticated caller was admitted.
func (m *Metrics) warn(sender *Sender, job *v2alpha1.DIJob) {
	m.log.WithValues(names.LogWhole(job)...).Info(
		"Admitted an unauthenticated caller (mode legacy); mode enforce would reject it", "address", sender.address)
}

// LogForbidden logs that the server itself has no permission for a call. It logs each permission at most once
// per forbiddenInterval.
func (m *Metrics) LogForbidden(err error) {
	if _, logged := m.forbidden.Get(err.Error()); logged {
		return
	}
	m.forbidden.Add(err.Error(), true, forbiddenInterval)
	m.log.Error(err, "di-server lacks a permission; requests that need it wait")
}
