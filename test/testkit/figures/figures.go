// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package figures summarizes and formats the results of benchmarks.
package figures

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Percentile returns the time that the given percentage of times did not exceed; 0 without times.
func Percentile(times []time.Duration, percent float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(float64(len(sorted)) * percent / 100))
	return sorted[max(rank, 1)-1]
}

// Millis formats a time in milliseconds for tables.
func Millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// Seconds formats a time in seconds for tables.
func Seconds(d time.Duration) string {
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// Shown formats a percentile for tables.
func Shown(times []time.Duration, percent float64) string {
	if len(times) == 0 {
		return "-"
	}
	return Millis(Percentile(times, percent))
}

// Mebibytes formats a size for tables.
func Mebibytes(bytes int64) string {
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}

// Limits are the limits that a benchmark missed.
type Limits []string

// Require records a limit that does not hold.
func (l *Limits) Require(holds bool, format string, arguments ...any) {
	if !holds {
		*l = append(*l, fmt.Sprintf(format, arguments...))
	}
}

// Under records a time that is not below its limit.
func (l *Limits) Under(took, limit time.Duration, what string) {
	l.Require(took < limit, "%s is %s, the limit %s", what, Millis(took), Millis(limit))
}
