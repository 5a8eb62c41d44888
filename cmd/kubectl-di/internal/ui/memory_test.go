// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestMemoryIsLimitedUnlessMoreIsInUse(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for live, want := range map[int64]int64{0: 96 * mib, 51 * mib: 96 * mib, 64 * mib: 112 * mib, 400 * mib: 532 * mib} {
		if got := softLimit(live); got != want {
			t.Errorf("with %d MiB in use the limit is %d MiB, want %d", live/mib, got/mib, want/mib)
		}
	}
}

func TestAServerIsFullByGOMEMLIMITAndNotByTheLimitThatAPageFollows(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1))
	runtime.GC() // before the first collection of a process, no memory counts as live
	for limit, want := range map[string]bool{"": false, "1B": true} {
		t.Setenv("GOMEMLIMIT", limit)
		if got := isFull(); got != want {
			t.Errorf("with GOMEMLIMIT %q a server is full: %v, want %v", limit, got, want)
		}
	}
}
