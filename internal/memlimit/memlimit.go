// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memlimit lets the memory limit of the Go runtime follow the memory in use, so that a program keeps
// little garbage and the collector can always reach its limit.
package memlimit

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/utils/clock"
)

// pause is how often the limit follows the memory in use.
const pause = 10 * time.Second

// Follow sets the limit that a function returns for the live memory, in bytes, until the context ends. GOMEMLIMIT
// stays the maximum.
func Follow(ctx context.Context, clk clock.WithTicker, limit func(live int64) int64) {
	most := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(most)
	pauses := clk.NewTicker(pause)
	defer pauses.Stop()
	for {
		debug.SetMemoryLimit(min(most, limit(Live())))
		select {
		case <-ctx.Done():
			return
		case <-pauses.C():
		}
	}
}

// Live returns how many bytes the last garbage collection left.
func Live() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64()) //nolint:gosec // no heap has 2^63 bytes
}
