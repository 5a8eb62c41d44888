// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"testing"
	"time"
)

func TestOnlyWhatIsRestartedMoreOftenThanByDefaultWaits(t *testing.T) {
	t.Parallel()
	const s = time.Second
	want := []time.Duration{0, 0, 0, 0, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s, 300 * s}
	for restarts, want := range want {
		if got := restartBackoff(int32(restarts)); got != want {
			t.Errorf("restart %d waits %v, want %v", restarts, got, want)
		}
	}
	if got := restartBackoff(1 << 30); got != 300*s {
		t.Errorf("the backoff grows to %v", got)
	}
}
