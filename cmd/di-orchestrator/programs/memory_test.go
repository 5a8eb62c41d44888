// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import "testing"

func TestMemoryIsLimitedUnlessMoreIsInUse(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for live, want := range map[int64]int64{0: 400 * mib, 206 * mib: 405 * mib, 400 * mib: 696 * mib} {
		if got := softLimit(live); got != want {
			t.Errorf("with %d MiB in use the limit is %d MiB, want %d", live/mib, got/mib, want/mib)
		}
	}
}
