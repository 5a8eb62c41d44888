// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// percentile returns the time that so many of 100 did not exceed; 0 of none.
func percentile(times []time.Duration, percent float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(float64(len(sorted)) * percent / 100))
	return sorted[max(rank, 1)-1]
}

// millis is a time as tables show it.
func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// shown is a percentile as tables show it.
func shown(times []time.Duration, percent float64) string {
	if len(times) == 0 {
		return "-"
	}
	return millis(percentile(times, percent))
}

// mebibytes is a size as tables show it.
func mebibytes(bytes int64) string {
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}

// limits are the limits that were missed.
type limits []string

// require notes a limit that does not hold.
func (l *limits) require(holds bool, format string, arguments ...any) {
	if !holds {
		*l = append(*l, fmt.Sprintf(format, arguments...))
	}
}

// under notes a time that is not under its limit.
func (l *limits) under(took, limit time.Duration, what string) {
	l.require(took < limit, "%s is %s, the limit %s", what, millis(took), millis(limit))
}
