// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestOnlyWhatIsRestartedMoreOftenThanByDefaultWaits(t *testing.T) {
	const s = time.Second
	want := []time.Duration{0, 0, 0, 0, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s, 300 * s}
	for restarts, want := range want {
		expect.Equal(t, fmt.Sprintf("restart %d waits", restarts), want, restartBackoff(int32(restarts)))
	}
	expect.Equal(t, "the backoff grows to", 300*s, restartBackoff(1<<30))
}
