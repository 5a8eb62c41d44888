// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatComesFasterThanItsRateWaitsAndKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sent, burst, perSecond, seconds = 200, 100, 20, 2
		p, begun := newPace("calls of one address", perSecond, burst), time.Now()
		var done, refused atomic.Int32
		var group sync.WaitGroup
		for range sent {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
				defer cancel()
				if err := p.wait(ctx, "many"); err != nil {
					refused.Add(1)
					return
				}
				done.Add(1)
			})
		}
		synctest.Wait()
		if err := p.wait(t.Context(), "one"); err != nil || time.Since(begun) != 0 {
			t.Errorf("another waits for %s (%v), want not at all", time.Since(begun), err)
		}
		if got := done.Load(); got != burst {
			t.Errorf("%d are done at once, want %d", got, burst)
		}
		group.Wait()
		if got := done.Load(); got != burst+perSecond*seconds {
			t.Errorf("%d are done in %d seconds, want %d", got, seconds, burst+perSecond*seconds)
		}
		if got := refused.Load(); got != sent-done.Load() || time.Since(begun) != seconds*time.Second {
			t.Errorf("%d are refused after %s, want the others when their time is over", got, time.Since(begun))
		}
	})
}
