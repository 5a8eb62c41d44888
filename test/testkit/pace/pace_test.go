// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pace_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/pace"
)

func TestProberCallsAtItsPaceAlsoIfCallsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		probed := &pace.Prober{Every: time.Second, Call: func(ctx context.Context, number int) error {
			if number == 2 {
				return errors.New("refused")
			}
			return pace.Pause(ctx, 3*time.Second)
		}}
		probed.Start(t.Context())
		time.Sleep(5500 * time.Millisecond) //nolint:forbidigo // the time of synctest
		probed.Stop()
		taken := probed.Take()
		if taken.Calls() != 5 || taken.Failed != 1 || len(taken.Failures) != 1 {
			t.Errorf("%d calls, %d failed: %q; want 5 and 1", taken.Calls(), taken.Failed, taken.Failures)
		}
		if taken.Slowest != 3*time.Second || taken.P99() != 3*time.Second {
			t.Errorf("slowest %s, p99 %s; want 3s", taken.Slowest, taken.P99())
		}
		if again := probed.Take(); again.Calls() != 0 {
			t.Errorf("%d calls were taken twice", again.Calls())
		}
	})
}

func TestTalliesAddUp(t *testing.T) {
	t.Parallel()
	total := pace.Tally{Times: []time.Duration{time.Second}, Slowest: time.Second}
	total.Add(pace.Tally{Failed: 7, Slowest: time.Minute, Failures: []string{"a", "b", "c", "d", "e"}})
	total.Add(pace.Tally{Failed: 1, Failures: []string{"f"}})
	if total.Calls() != 9 || total.Failed != 8 || total.Slowest != time.Minute || len(total.Failures) != 5 {
		t.Errorf("got %+v", total)
	}
}
