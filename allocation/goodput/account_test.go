// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"math"
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

func TestAJobStarvesOnceItsWaitsExceedAShareOfItsWork(t *testing.T) {
	policy, unknown := New(DefaultSettings()), math.NaN()
	for name, c := range map[string]struct {
		// The job is age old, has trained for ran, and has had no replicas for waits.
		age, ran, waits time.Duration
		work, remaining float64
		want            bool
	}{
		"new":                            {9 * time.Minute, 0, 9 * time.Minute, 0, unknown, false},
		"never placed":                   {11 * time.Minute, 0, 11 * time.Minute, 0, unknown, true},
		"waited for less than the share": {130 * time.Minute, 100 * time.Minute, 29 * time.Minute, 6000, unknown, false},
		"waited for more than the share": {180 * time.Minute, 100 * time.Minute, 79 * time.Minute, 6000, unknown, true},
		"has just stopped":               {180 * time.Minute, 100 * time.Minute, 9 * time.Minute, 6000, unknown, false},
		"runs, and has waited too long":  {180 * time.Minute, 100 * time.Minute, 0, 6000, unknown, true},
		"runs, and has made up for it":   {280 * time.Minute, 200 * time.Minute, 0, 12000, unknown, false},
		"has much work left":             {180 * time.Minute, 100 * time.Minute, 79 * time.Minute, 6000, 6000, false},
	} {
		v := &view{job: &allocation.Job{Created: midnight, Waiting: c.waits}, usage: allocation.Usage{Restarts: 1}}
		if c.waits == 0 {
			v.previous = []string{"node"}
		}
		job := &Job{Age: c.age.Seconds(), RunFor: c.ran.Seconds(), HasRun: c.ran > 0, Work: c.work, Remaining: c.remaining, RestartCost: 30}
		if got := policy.starves(v, job, midnight.Add(c.age)); got > 1 != c.want {
			t.Errorf("a job that is %s starves %g times, want beyond 1: %t", name, got, c.want)
		}
	}
}
