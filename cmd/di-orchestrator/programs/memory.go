// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/utils/clock"
)

const (
	// leastMemory is a limit that an operator with 50,000 pods stays below without effort.
	leastMemory = 440 << 20
	// memoryCheck is how often the limit follows the memory in use.
	memoryCheck = 10 * time.Second
)

// memoryLimit limits the memory that an operator uses for garbage. Its caches are large and change little, so that
// twice their size, Go's default, is more than it needs.
type memoryLimit struct{ clock clock.WithTicker }

// NeedLeaderElection implements manager.LeaderElectionRunnable: the caches of a standby are as large.
func (memoryLimit) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. GOMEMLIMIT stays the most.
func (m memoryLimit) Start(ctx context.Context) error {
	most := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(most)
	checks := m.clock.NewTicker(memoryCheck)
	defer checks.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		metrics.Read(live)
		debug.SetMemoryLimit(min(most, softLimit(int64(live[0].Value.Uint64())))) //nolint:gosec // no heap has 2^63 bytes
		select {
		case <-ctx.Done():
			return nil
		case <-checks.C():
		}
	}
}

// softLimit returns the limit for an amount of live memory. It leaves room, so that more pods than usual cost memory
// and not the time of a collector that cannot reach its limit.
func softLimit(live int64) int64 {
	return max(leastMemory, live+live/2+128<<20)
}
