// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/utils/clock"
)

const (
	// leastLimit is a limit that 5,000 jobs with long curves stay below.
	leastLimit = 96 << 20
	// limitPause is how often the limit follows the memory in use.
	limitPause = 10 * time.Second
)

// limitMemory lets the garbage collector keep the command small until the context ends: a user's
// computer has other work. A limit of the user counts instead.
func limitMemory(ctx context.Context, clk clock.WithTicker) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	pauses := clk.NewTicker(limitPause)
	defer pauses.Stop()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for {
		debug.SetMemoryLimit(softLimit(liveMemory()))
		select {
		case <-ctx.Done():
			return
		case <-pauses.C():
		}
	}
}

// softLimit returns the limit for an amount of live memory. It leaves room, so that more jobs than
// usual cost memory and not the time of a collector that cannot reach its limit.
func softLimit(live int64) int64 {
	return max(leastLimit, live+live/4+32<<20)
}

// liveMemory returns what the last garbage collection left.
func liveMemory() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64()) //nolint:gosec // no heap has 2^63 bytes
}
