// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"testing"
	"time"

	"opendilab.org/di-orchestrator/allocation"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestUsageCountsWorkOutsideOfRestarts(t *testing.T) {
	usage := allocation.Usage{At: midnight, Work: 100, Useful: 1000, Attained: 50, RunFor: 20, Restarting: 30}
	at := pace{speed: 3, goodput: 7, capacity: 4}
	got := advance(usage, midnight.Add(time.Minute), at)
	want := allocation.Usage{
		At: midnight.Add(time.Minute), Work: 100 + 3*30, Useful: 1000 + 7*30, Attained: 50 + 4*60, RunFor: 20 + 30,
	}
	if got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
	twice := advance(advance(usage, midnight.Add(10*time.Second), at), midnight.Add(time.Minute), at)
	if twice != want {
		t.Errorf("in two rounds usage is %+v, want %+v", twice, want)
	}
	if again := advance(want, midnight, at); again != want {
		t.Errorf("usage %+v at an earlier time, want it unchanged", again)
	}
}

func TestTheFirstStartIsNoRestart(t *testing.T) {
	started := restarted(allocation.Usage{}, midnight, 30*time.Second)
	if want := (allocation.Usage{At: midnight, Restarting: 30}); started != want {
		t.Errorf("usage %+v, want %+v", started, want)
	}
	moved := restarted(started, midnight.Add(time.Hour), time.Minute)
	if want := (allocation.Usage{At: midnight.Add(time.Hour), Restarting: 60, Restarts: 1}); moved != want {
		t.Errorf("usage %+v, want %+v", moved, want)
	}
}

func TestAJobStarvesAfterAShareOfItsAge(t *testing.T) {
	settings := DefaultSettings()
	job := &allocation.Job{Created: midnight}
	for _, c := range []struct {
		ran, now time.Duration
		want     bool
	}{
		{0, 9 * time.Minute, false},
		{0, 11 * time.Minute, true},
		{100 * time.Minute, 115 * time.Minute, false},
		{100 * time.Minute, 130 * time.Minute, true},
	} {
		job.Usage.At = time.Time{}
		if c.ran > 0 {
			job.Usage.At = midnight.Add(c.ran)
		}
		if got := settings.starves(job, midnight.Add(c.now)) > 1; got != c.want {
			t.Errorf("after %v, and running until %v: starving is %t, want %t", c.now, c.ran, got, c.want)
		}
	}
}
