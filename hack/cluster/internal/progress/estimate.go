// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress runs the steps of a command in sequence. It reports the current step, the
// durations, and an estimate of the remaining time.
package progress

import "time"

// prior is the weight of the expected speed relative to the measured one. The estimate adapts
// gradually to this machine and does not jump after the first step.
const prior = 2 * time.Minute

// slowest limits the factor of slowness, so that one stalled step does not distort the estimate of
// all others.
const slowest = 10

// Left estimates the time until all work is done. Total and done are durations on the reference
// machine. Elapsed is the duration of the completed part on this machine.
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
