// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress runs the steps of a command one after the other and reports
// which step runs, how long it took and about how long is left.
package progress

import "time"

// prior is the weight of the expectation beside what was measured: the estimate moves
// towards the pace of this machine gradually and does not jump after the first step.
const prior = 2 * time.Minute

// slowest bounds the pace: one step that stood still does not spoil the estimate of
// all others.
const slowest = 10

// Left estimates the time until all work is done. Total and done are in the time that
// the work takes on the machine the numbers are from; elapsed is the time that the part
// done took on this machine.
func Left(total, done, elapsed time.Duration) time.Duration {
	pace := min(float64(prior+elapsed)/float64(prior+done), slowest)
	return time.Duration(float64(max(total-done, 0)) * pace)
}

// Human rounds a duration for a reader.
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
