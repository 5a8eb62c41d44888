// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package memlimit

import (
	"context"
	"runtime/debug"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	testingclock "k8s.io/utils/clock/testing"
)

// It changes a setting of the process, so it does not run in parallel.
func TestTheLimitIsThatOfTheProgramOrOfTheUserUntilTheEnd(t *testing.T) {
	const wanted = 440 << 20
	for _, tc := range []struct{ most, want int64 }{{690 << 20, wanted}, {200 << 20, 200 << 20}} {
		before := debug.SetMemoryLimit(tc.most)
		ctx, stop := context.WithCancel(t.Context())
		clk, ended := testingclock.NewFakeClock(time.Now()), make(chan struct{})
		go func() { defer close(ended); Follow(ctx, clk, func(int64) int64 { return wanted }) }()
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return clk.HasWaiters() && debug.SetMemoryLimit(-1) == tc.want, nil
		})
		stop()
		if err != nil {
			t.Errorf("with GOMEMLIMIT %d: the limit is %d, want %d", tc.most, debug.SetMemoryLimit(-1), tc.want)
		}
		if <-ended; debug.SetMemoryLimit(before) != tc.most {
			t.Errorf("after the end, the limit is not %d as before", tc.most)
		}
	}
}
