// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"runtime/debug"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	testingclock "k8s.io/utils/clock/testing"
)

func TestMemoryIsLimitedUnlessMoreIsInUse(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for live, want := range map[int64]int64{0: 440 * mib, 206 * mib: 440 * mib, 400 * mib: 728 * mib} {
		if got := softLimit(live); got != want {
			t.Errorf("with %d MiB in use the limit is %d MiB, want %d", live/mib, got/mib, want/mib)
		}
	}
}

// It changes a setting of the process, so it does not run in parallel.
func TestTheMemoryOfAnOperatorIsLimitedUntilItStops(t *testing.T) {
	for _, tc := range []struct{ most, want int64 }{{690 << 20, leastMemory}, {200 << 20, 200 << 20}} {
		before := debug.SetMemoryLimit(tc.most)
		ctx, stop := context.WithCancel(t.Context())
		clk, ended := testingclock.NewFakeClock(time.Now()), make(chan error, 1)
		go func() { ended <- memoryLimit{clk}.Start(ctx) }()
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return clk.HasWaiters() && debug.SetMemoryLimit(-1) == tc.want, nil
		})
		stop()
		if err != nil {
			t.Errorf("with GOMEMLIMIT %d: the limit is %d, want %d", tc.most, debug.SetMemoryLimit(-1), tc.want)
		}
		if err := <-ended; err != nil || debug.SetMemoryLimit(before) != tc.most {
			t.Errorf("after the end, the limit is not %d as before; error %v", tc.most, err)
		}
	}
}
