// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import "testing"

func TestMemoryIsLimitedUnlessMoreIsInUse(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for live, want := range map[int64]int64{0: 96 * mib, 51 * mib: 96 * mib, 64 * mib: 112 * mib, 400 * mib: 532 * mib} {
		if got := softLimit(live); got != want {
			t.Errorf("with %d MiB in use the limit is %d MiB, want %d", live/mib, got/mib, want/mib)
		}
	}
}
