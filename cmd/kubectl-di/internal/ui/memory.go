// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"os"

	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/internal/memlimit"
)

// leastLimit is a limit that 5,000 jobs with long curves stay below.
const leastLimit = 96 << 20

// limitMemory lets the garbage collector keep the command small until the context ends: a user's
// computer has other work. A limit of the user counts instead.
func limitMemory(ctx context.Context, clk clock.WithTicker) {
	if os.Getenv("GOMEMLIMIT") == "" {
		memlimit.Follow(ctx, clk, softLimit)
	}
}

// softLimit returns the limit for an amount of live memory. It leaves room, so that more jobs than
// usual cost memory and not the time of a collector that cannot reach its limit.
func softLimit(live int64) int64 {
	return max(leastLimit, live+live/4+32<<20)
}
