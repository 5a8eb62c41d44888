// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// termMetrics registers metrics that are told for one term: what is known of jobs is
// what the next elected operator tells.
type termMetrics struct {
	prometheus.Registerer

	mutex sync.Mutex
	all   []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (m *termMetrics) Register(collector prometheus.Collector) error {
	if err := m.Registerer.Register(collector); err != nil {
		return err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.all = append(m.all, collector)
	return nil
}

// unregister takes the metrics of the term away.
func (m *termMetrics) unregister() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, collector := range slices.Backward(m.all) {
		m.Unregister(collector)
	}
	m.all = nil
}

// resetQueues takes away how long queues are that are no more: what waited in them
// when they were shut down would be told for ever. The libraries' metric is found by
// registering its like.
func resetQueues(registerer prometheus.Registerer) {
	like := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "workqueue_depth", Help: "Current depth of workqueue by workqueue and priority",
	}, []string{"name", "controller", "priority"})
	var known prometheus.AlreadyRegisteredError
	if !errors.As(registerer.Register(like), &known) {
		registerer.Unregister(like)
		return
	}
	if depth, is := known.ExistingCollector.(*prometheus.GaugeVec); is {
		depth.Reset()
	}
}
