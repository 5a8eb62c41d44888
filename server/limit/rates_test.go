// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAKeyAboveItsRateWaitsAndDelaysNoOtherKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sent, burst, perSecond, seconds = 200, 100, 20, 2
		// Between two ticks, so that no tick coincides with the deadline.
		const until = seconds*time.Second + time.Second/(2*perSecond)
		rates, begun := NewRates("calls of one address", perSecond, burst), time.Now()
		var done, refused atomic.Int32
		var group sync.WaitGroup
		for range sent {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), until)
				defer cancel()
				if err := rates.Wait(ctx, "many"); err != nil {
					refused.Add(1)
					return
				}
				done.Add(1)
			})
		}
		synctest.Wait()
		if err := rates.Wait(t.Context(), "one"); err != nil || time.Since(begun) != 0 {
			t.Errorf("another waits for %s (%v), want not at all", time.Since(begun), err)
		}
		if got := done.Load(); got != burst {
			t.Errorf("%d are done at once, want %d", got, burst)
		}
		group.Wait()
		if got := done.Load(); got != burst+perSecond*seconds {
			t.Errorf("%d are done in %s, want %d", got, until, burst+perSecond*seconds)
		}
		if got := refused.Load(); got != sent-done.Load() || time.Since(begun) != until {
			t.Errorf("%d are refused after %s, want the others when their time is over", got, time.Since(begun))
		}
	})
}
