// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress runs the steps of a command one after the other and says
// which one of how many runs, how long it took and about how long is left.
package progress

import "time"

// The measured pace counts once this much expected work was done; before that
// a short step could make the estimate jump.
const enoughToJudge = 10 * time.Second

// The pace of a machine is kept within these bounds, for one odd step should
// not spoil the estimate of all others.
const (
	fastest = 0.1
	slowest = 10.0
)

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

// pace is how much longer than expected things take on this machine.
func pace(works []Work) float64 {
	var expected, took time.Duration
	for _, w := range works {
		if w.Done && !w.Skipped {
			expected += w.Expected
			took += w.Took
		}
	}
	if expected < enoughToJudge {
		return 1
	}
	return min(max(float64(took)/float64(expected), fastest), slowest)
}

// Left estimates how long it takes until all works are done, when the first
// one that is not done has been running for the given time.
func Left(works []Work, running time.Duration) time.Duration {
	factor := pace(works)
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
