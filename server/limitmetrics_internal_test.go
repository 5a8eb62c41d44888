// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// counted returns what a registry has counted, by metric and label.
func counted(t *testing.T, registry *prometheus.Registry, metric string) map[string]int {
	t.Helper()
	families, err := registry.Gather()
	expect.NoError(t, err)
	found := map[string]int{}
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			if family.GetName() != "di_orchestrator_server_"+metric {
				continue
			}
			var labels []string
			for _, pair := range sample.GetLabel() {
				labels = append(labels, pair.GetValue())
			}
			found[strings.Join(labels, " ")] = int(sample.GetCounter().GetValue())
		}
	}
	return found
}

func TestWhatBecomesOfReportsIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, registry := newMemory(t), prometheus.NewRegistry()
		store.newWorkerLed(t)
		served := newMemoryServer(t, store, func(options *Options) { options.Metrics = registry })
		for step := range 5 {
			post(served, fmt.Sprintf(`{"step":%d}`, step))
		}
		mustPass(t, 5*time.Minute)
		post(served, `{"step":4}`)
		mustPass(t, 5*time.Minute)
		store.set(true)
		post(served, `{"step":5}`)
		want := map[string]int{"written": 4, "coalesced": 1, "unchanged": 1, "failed": 1}
		if diff := cmp.Diff(want, counted(t, registry, "profilings_total")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWritesThatWaitForTheBudgetAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, registry := newMemory(t), prometheus.NewRegistry()
		store.newWorkerLed(t)
		served := newMemoryServer(t, store, func(options *Options) {
			options.Metrics, options.Limits.WriteBytesPerMinute = registry, 1
		})
		for step := range 2 {
			post(served, fmt.Sprintf(`{"step":%d}`, step))
			mustPass(t, time.Minute)
		}
		if got := counted(t, registry, "writes_over_budget_total")[""]; got == 0 {
			t.Error("none is counted")
		}
		served.reports.pending.Flush()
	})
}

func TestBodiesThatAreNotReadAreCountedByReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		connect := served(t, newMemoryServer(t, newMemory(t), func(options *Options) { options.Metrics = registry }))
		mustAnswer(t, sent(t, connect(1), maxBody+1, ""), "400 ")
		mustAnswer(t, sent(t, connect(1), 2, "{"), later)
		var slow []<-chan string
		for range maxOwnBodies / maxBody {
			slow = append(slow, sent(t, connect(1), maxBody, strings.Repeat(" ", maxBody/3)))
		}
		synctest.Wait()
		mustAnswer(t, sent(t, connect(1), 2, "{}"), "400 ")
		for _, answered := range slow {
			mustAnswer(t, answered, later)
		}
		want := map[string]int{"size": 1, "slow": 4, "shed": 1, "connections": 0, "room": 0}
		if diff := cmp.Diff(want, counted(t, registry, "refused_total")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWhyABodyWasNotReadIsTold(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	limited, err := newLimitMetrics(registry)
	expect.NoError(t, err)
	limited.bodyRefused(fmt.Errorf("waiting for room: %w", context.DeadlineExceeded))
	limited.bodyRefused(&http.MaxBytesError{Limit: 1})
	limited.bodyRefused(errors.New("its sender has gone"))
	limited.connectionRefused()
	want := map[string]int{"size": 1, "slow": 0, "shed": 0, "connections": 1, "room": 1}
	if diff := cmp.Diff(want, counted(t, registry, "refused_total")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
