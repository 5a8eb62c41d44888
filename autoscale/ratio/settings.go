// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"time"
)

// Pool is a task of producers and its bounds.
type Pool struct {
	// Task is the name of the task.
	Task string
	// Min and Max bound the replicas of the task. Max includes what others grant, such as the
	// allocator or a quota.
	Min, Max int32
}

// Settings are the constants of the rule. Defaults returns the documented values; a value that is
// not positive or not finite has its default.
type Settings struct {
	// Pools are the tasks of producers, the preferred one first.
	Pools []Pool
	// MaxStaleness is how many versions of the policy old a sample may be when it is consumed. 0 is
	// what the consumer reports, or else 4.
	MaxStaleness float64
	// Interval is the time between decisions; 30 s. Urgent decides again after UrgentInterval; 5 s.
	Interval, UrgentInterval time.Duration
	// MinStartDelay is the shortest delay between a request for a producer and its first sample
	// that the gain assumes; 30 s. MaxStartDelay clamps measured delays; 600 s.
	MinStartDelay, MaxStartDelay time.Duration
	// TargetShare is the queue's target, as a part of the staleness bound; 0.47.
	TargetShare float64
	// QueueShare is the part of the queue's capacity that the target may fill; 0.6.
	QueueShare float64
	// Lookahead is how far ahead a growth follows the trends of the capacities, in start delays; 0.5.
	Lookahead float64
	// DeadBand is the part of the size by which it may be wrong without a resize; 0.1.
	DeadBand float64
	// ShrinkMargin is the part of the dead band that a shrink keeps above the size that suffices, so
	// that noise does not reverse it; 0.3.
	ShrinkMargin float64
	// IntegralShare bounds the integral's part of the requested rate, CorrectionShare the queue's whole
	// part. Both are parts of the consumer's capacity; 0.07.
	IntegralShare, CorrectionShare float64
	// FullQueue is from how many times its target on the queue is too full; 1.4.
	FullQueue float64
	// UrgentShare is the least of the queue's part while less than a batch waits, or while the queue
	// is too full; 0.045.
	UrgentShare float64
	// GrowInterval is the time between growths that are not urgent; 60 s. ShrinkInterval is the time
	// between shrinks; 300 s.
	GrowInterval, ShrinkInterval time.Duration
	// BlockedShare is the blocked share of producers at the minimum size above which the size is
	// reported as out of range; 0.2. StarvedShare is the same for the consumer at the maximum size; 0.05.
	BlockedShare, StarvedShare float64
}

// defaultStaleness is the bound on staleness that nobody sets or reports, in versions.
const defaultStaleness = 4

// Defaults returns the settings that the figures of docs/ratio.md hold for.
func Defaults() Settings {
	return Settings{
		Interval: 30 * time.Second, UrgentInterval: 5 * time.Second,
		MinStartDelay: 30 * time.Second, MaxStartDelay: 10 * time.Minute,
		TargetShare: 0.47, QueueShare: 0.6, Lookahead: 0.5, DeadBand: 0.1, ShrinkMargin: 0.3,
		IntegralShare: 0.07, CorrectionShare: 0.07, UrgentShare: 0.045, FullQueue: 1.4,
		GrowInterval: time.Minute, ShrinkInterval: 5 * time.Minute,
		BlockedShare: 0.2, StarvedShare: 0.05,
	}
}

// completed returns the settings with defaults for values that cannot be used.
func (s Settings) completed() Settings {
	defaults := Defaults()
	for _, field := range []struct {
		value *float64
		or    float64
	}{
		{&s.TargetShare, defaults.TargetShare}, {&s.Lookahead, defaults.Lookahead},
		{&s.QueueShare, defaults.QueueShare}, {&s.DeadBand, defaults.DeadBand}, {&s.ShrinkMargin, defaults.ShrinkMargin},
		{&s.UrgentShare, defaults.UrgentShare}, {&s.FullQueue, defaults.FullQueue},
		{&s.IntegralShare, defaults.IntegralShare}, {&s.CorrectionShare, defaults.CorrectionShare},
		{&s.BlockedShare, defaults.BlockedShare}, {&s.StarvedShare, defaults.StarvedShare},
	} {
		if !isPositive(*field.value) {
			*field.value = field.or
		}
	}
	for _, field := range []struct {
		value *time.Duration
		or    time.Duration
	}{
		{&s.Interval, defaults.Interval}, {&s.UrgentInterval, defaults.UrgentInterval},
		{&s.MinStartDelay, defaults.MinStartDelay}, {&s.MaxStartDelay, defaults.MaxStartDelay},
		{&s.GrowInterval, defaults.GrowInterval}, {&s.ShrinkInterval, defaults.ShrinkInterval},
	} {
		if *field.value <= 0 {
			*field.value = field.or
		}
	}
	return s
}

// isPositive reports whether a number is finite and more than 0.
func isPositive(x float64) bool { return x > 0 && x <= math.MaxFloat64 }
