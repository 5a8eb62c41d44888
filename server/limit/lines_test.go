// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"strconv"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestLinesOfOneMessageAreFewHoweverManyKeysTriggerThem(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	lines, written := NewLines(clock), 0
	for i := range 3 * maxCounted {
		if _, allowed := lines.Allow("refused", strconv.Itoa(i)); allowed {
			written++
		}
	}
	if written != maxLines {
		t.Errorf("%d lines are allowed, want %d", written, maxLines)
	}
	if _, allowed := lines.Allow("another", "0"); !allowed {
		t.Error("another message is suppressed")
	}
	if got := lines.each.Len(); got > maxCounted {
		t.Errorf("%d counts are kept, want at most %d", got, maxCounted)
	}
	clock.SetTime(clock.Now().Add(linesWindow))
	if _, allowed := lines.Allow("refused", "0"); !allowed {
		t.Error("the message is still suppressed a minute later")
	}
}

func TestAKeyHasFewLinesAndTheNextOneCountsThoseSuppressed(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	lines, written := NewLines(clock), 0
	for range maxLinesPerKey + 35 {
		if _, allowed := lines.Allow("failed", "job"); allowed {
			written++
		}
	}
	clock.SetTime(clock.Now().Add(linesWindow))
	suppressed, allowed := lines.Allow("failed", "job")
	if written != maxLinesPerKey || !allowed || suppressed != 35 {
		t.Errorf("%d lines are allowed, then %t with %d suppressed, want %d and 35", written, allowed, suppressed, maxLinesPerKey)
	}
}
