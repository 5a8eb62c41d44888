// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Measurement is what the rule knows about a job. Rates are samples per second. Others send most of
// it, so Decide checks each number before it uses it.
type Measurement struct {
	// ProducerCapacity is what one producer makes while nothing blocks it. ConsumerCapacity is how
	// many fresh samples the consumer takes while it never waits. 0 is unknown.
	ProducerCapacity, ConsumerCapacity float64
	// ProducerTrend and ConsumerTrend are by which part of themselves the capacities change in a
	// second; 0 is unknown.
	ProducerTrend, ConsumerTrend float64
	// Surge is by which factor the last round alone asks for more producers than the capacities, which do not
	// follow one round; at least 1.
	Surge float64
	// Queue is how many samples wait, and QueueCapacity how many may; 0 is unknown.
	Queue, QueueCapacity float64
	// Batch is the samples of one version of the policy.
	Batch float64
	// InFlight is how many samples producers have begun and not yet delivered.
	InFlight float64
	// Starved is the share of time that the consumer waits for samples, and Blocked the share of
	// time that producers wait for room or weights, both from 0 to 1.
	Starved, Blocked float64
	// StarvedLast and BlockedLast are those of the last round in which workers worked or waited, which may be a step.
	StarvedLast, BlockedLast float64
	// MaxStaleness is the bound that the consumer reports, in versions; 0 is unknown.
	MaxStaleness float64
	// Pools are the producers, in the sequence of Settings.Pools.
	Pools []PoolSize
	// StartDelays are the times between the request for a producer and its first report, of the
	// producers that started last. One that still starts counts with its age.
	StartDelays []time.Duration
}

// PoolSize is how many producers a task has.
type PoolSize struct {
	// Requested is the count in the spec. Running of them report. Stuck of them cannot start: they
	// are unschedulable or fail again and again. The rest is starting.
	Requested, Running, Stuck int32
	// Capacity is what one producer of this task makes while nothing blocks it; 0 is the
	// measurement's ProducerCapacity.
	Capacity float64
	// IsGrouped is set if the pool shrinks only to one of Smaller, in ascending order: a queue takes replicas back in groups.
	IsGrouped bool
	Smaller   []int32
}

// shrunk returns the least count that the pool may shrink to for a count.
func (p *PoolSize) shrunk(count int32) int32 {
	if !p.IsGrouped || count >= p.Requested {
		return count
	}
	for _, smaller := range p.Smaller {
		if smaller >= count {
			return min(smaller, p.Requested)
		}
	}
	return p.Requested
}

// State is what the rule remembers from decision to decision. A new leader reads it from the job's
// status with StateFrom.
type State struct {
	// Integral is the integral of the queue's error, in samples times seconds.
	Integral float64
	// Correction is by which factor the number of producers differs from the ratio of the capacities, because
	// waiting contradicts them; 0 is 1.
	Correction float64
	// Off is -1 while the queue lacks a batch and no producer is blocked, 1 while it is too full, and else 0.
	// OffSince is since when, with the present producers.
	Off      int
	OffSince time.Time
	// Tried is what the consumer took at the last correction upwards, and Before the correction before that; 0 is none
	// since the queue had a batch.
	Tried, Before float64
	// DecidedAt, GrownAt and ShrunkAt are the times of the last decision and resizes; zero is never.
	DecidedAt, GrownAt, ShrunkAt time.Time
	// StartDelay is the 95th percentile of the last measured start delays; 0 is none measured.
	StartDelay time.Duration
	// ProducerCapacity and ConsumerCapacity are the last known capacities. An Estimator starts with them.
	ProducerCapacity, ConsumerCapacity float64
}

// Reasons of decisions.
const (
	// ReasonGrown is more producers.
	ReasonGrown = "Grown"
	// ReasonShrunk is fewer producers.
	ReasonShrunk = "Shrunk"
	// ReasonMoved is other pools for the same capacity.
	ReasonMoved = "Moved"
	// ReasonBalanced is a size inside the dead band.
	ReasonBalanced = "Balanced"
	// ReasonCoolingDown is a resize that is too soon after the last one.
	ReasonCoolingDown = "CoolingDown"
	// ReasonStarting is a shrink that waits for producers that start.
	ReasonStarting = "ProducersStarting"
	// ReasonAtBounds is a size that the bounds of the pools keep.
	ReasonAtBounds = "AtBounds"
	// ReasonNoMeasurement is a size that is kept because capacities are unknown or unusable.
	ReasonNoMeasurement = "NoMeasurement"
)

// Limits that no size of the producers removes. They are reasons of a condition.
const (
	// LimitRange is a consumer that starves, or producers that are blocked, at every size inside
	// the bounds.
	LimitRange = v2alpha1.ReasonRatioOutOfRange
	// LimitStaleness is a bound on staleness that leaves too few samples between producers and consumer.
	LimitStaleness = v2alpha1.ReasonStalenessBoundLimitsThroughput
)

// Decision is what the rule decides.
type Decision struct {
	// Desired is how many producers the rule wants in total, before bounds and rate limits.
	Desired int32
	// Replicas is the requested total, and Pools the requested counts in the sequence of
	// Settings.Pools. Resize reports whether they differ from the measured ones.
	Replicas int32
	Pools    []int32
	Resize   bool
	// Reason and Message explain the decision.
	Reason, Message string
	// Limit is LimitRange, LimitStaleness or empty. LimitMessage says what would help.
	Limit, LimitMessage string
	// TargetQueue is how many samples should wait.
	TargetQueue float64
	// Next is the state for the next decision, which is due at NextAt.
	Next   State
	NextAt time.Time
}
