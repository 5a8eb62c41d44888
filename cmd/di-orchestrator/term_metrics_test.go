// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestMetricsOfATermAreGoneAfterItAndMayComeAgain(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for range 2 {
		term := &termMetrics{Registerer: registry}
		for _, name := range []string{"a", "b"} {
			if err := term.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: name})); err != nil {
				t.Fatal(err)
			}
		}
		if count, err := testutil.GatherAndCount(registry); count != 2 || err != nil {
			t.Errorf("in the term there are %d metrics, %v", count, err)
		}
		term.unregister()
		if count, err := testutil.GatherAndCount(registry); count != 0 || err != nil {
			t.Errorf("after it there are %d metrics, %v", count, err)
		}
	}
}

//nolint:paralleltest // the libraries' metrics are the process's, and other tests reset them
func TestWhatWaitedInAQueueThatIsNoMoreIsNotTold(t *testing.T) {
	const name = "left"
	queue := priorityqueue.New[reconcile.Request](name)
	queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "job"}})
	waits := func() bool {
		families, err := metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if family.GetName() == "workqueue_depth" && metric.GetLabel()[0].GetValue() == name && metric.GetGauge().GetValue() > 0 {
					return true
				}
			}
		}
		return false
	}
	await(t, "the queue is told", func(context.Context) error {
		if !waits() {
			return errors.New("it is not")
		}
		return nil
	})
	queue.ShutDown()
	resetQueues(metrics.Registry)
	if waits() {
		t.Error("what nobody will ever take is told to wait")
	}
}
