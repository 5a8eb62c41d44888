// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// liveHeap returns the bytes that the garbage collector cannot free.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// reporting returns a job that reports as much as the page keeps.
func reporting(name string, round int, now time.Time) *v2alpha1.DIJob {
	reports := job(name, []v2alpha1.Phase{v2alpha1.JobRunning, v2alpha1.JobRestarting}[round%2], 0)
	reports.Status.Restarts = int32(round) //nolint:gosec // it is small
	reports.Status.Profilings.Raw = fmt.Appendf(nil, `{"reward": %d, "fps": %d, "loss": %d, "a": 1, "b": 2, "c": 3}`, round, round, round)
	for _, role := range []string{"learner", "collector"} {
		reports.Status.Rates = append(reports.Status.Rates, v2alpha1.RoleRates{
			Role: role, Server: "server", Samples: int64(round), StalenessMeanThousandths: 1500, UpdatedAt: metav1.NewMicroTime(now),
		})
	}
	return reports
}

func TestAJobNeedsLittleMemoryHoweverOftenItChanges(t *testing.T) {
	const jobs, most = 1000, 12 << 10
	s, clk := shown()
	before := liveHeap()
	for round := range 150 {
		for i := range jobs {
			s.put(reporting(fmt.Sprintf("job-%04d", i), round, clk.Now()))
		}
		clk.Step(100 * time.Second)
	}
	if each := (liveHeap() - before) / jobs; each > most {
		t.Errorf("a job needs %d bytes: want at most %d", each, most)
	}
	runtime.KeepAlive(s)
}
