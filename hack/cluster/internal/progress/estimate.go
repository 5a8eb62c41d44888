// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress runs the steps of a command one after the other and says
// which one of how many runs, how long it took and about how long is left.
package progress

import "time"

// shortStep is the expected time below which a step announces no estimate.
const shortStep = 10 * time.Second

// prior is the weight of the expectation beside what was measured: the estimate moves
// towards the pace of this machine step by step and does not jump after the first.
const prior = 2 * time.Minute

// slowest bounds the pace: one step that stood still does not spoil the estimate of
// all others.
const slowest = 10.0

// Work is a step for the purpose of estimating.
type Work struct {
	// Expected is how long it takes on the machine the numbers are from.
	Expected time.Duration
	// Took is how long it took here, once it is done.
	Took time.Duration
	// Done says that it is over.
	Done bool
	// Skipped says that it was done before already.
	Skipped bool
}

// pace is the factor between the time that steps take on this machine and the expected
// time. The current step counts once it runs for longer than expected.
func pace(works []Work, running time.Duration) float64 {
	expected, took := prior, prior
	current := true
	for _, w := range works {
		switch {
		case w.Skipped:
		case w.Done:
			expected += w.Expected
			took += w.Took
		case current:
			if running > w.Expected {
				expected += w.Expected
				took += running
			}
			current = false
		}
	}
	return min(float64(took)/float64(expected), slowest)
}

// Left estimates the time until all works are done. The first one that is not done has
// been running for the given time.
func Left(works []Work, running time.Duration) time.Duration {
	factor := pace(works, running)
	var left time.Duration
	current := true
	for _, w := range works {
		if w.Done || w.Skipped {
			continue
		}
		expected := time.Duration(float64(w.Expected) * factor)
		if current {
			expected = max(expected-running, 0)
			current = false
		}
		left += expected
	}
	return left
}

// Human rounds a duration to what a reader wants to know.
func Human(d time.Duration) string {
	switch {
	case d < time.Second:
		return "under 1s"
	case d < 10*time.Minute:
		return d.Round(time.Second).String()
	default:
		return d.Round(time.Minute).String()
	}
}
