// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
)

// Maxima of what others send. A number above them is not used.
const (
	maxRate     = 1e12
	maxSamples  = 1e15
	maxReplicas = 100000
	// maxSurge bounds what one round can add.
	maxSurge = 2
	// maxTrend is a doubling in a quarter of an hour.
	maxTrend = 1.0 / 900
	// maxCorrection bounds by which factor waiting corrects the capacities, either way.
	maxCorrection = 10.0
	// maxLookahead is how many seconds a trend is followed at most. Beyond that it is mostly noise.
	maxLookahead = 90
)

// IsDue reports whether a decision is due: at nextAt, or UrgentInterval after the last one if less than a batch waits.
func (s Settings) IsDue(measured Measurement, nextAt, now time.Time) bool {
	s = s.completed()
	left := nextAt.Sub(now)
	return left <= 0 || measured.Queue < measured.Batch && left <= s.Interval-s.UrgentInterval
}

// Decide returns how many producers a job should have. It never panics: with a measurement that it
// cannot use it keeps the size, inside the bounds of the pools.
func Decide(settings Settings, state State, measured Measurement, now time.Time) Decision {
	l := newLaw(settings.completed(), state.checked(now), measured, now)
	if !l.isUsable() {
		return l.keep(ReasonNoMeasurement, "the capacities of producers and consumer are not known yet")
	}
	l.request()
	d := l.decide()
	d.Limit, d.LimitMessage = l.limit()
	return d
}

// law is one decision.
type law struct {
	Settings
	state State
	m     Measurement
	now   time.Time

	// elapsed is the time since the last decision, at most two intervals.
	elapsed time.Duration
	// sizes are the measured pools, one for each pool of the settings.
	sizes []PoolSize
	// target is the queue's target, room what the staleness bound leaves for the queue.
	target, room float64
	// rate is how many samples per second the producers should make, want the producers for that.
	rate, want float64
}

func newLaw(settings Settings, state State, measured Measurement, now time.Time) *law {
	l := &law{Settings: settings, state: state, m: measured, now: now}
	l.elapsed = settings.Interval
	if !state.DecidedAt.IsZero() {
		l.elapsed = min(max(now.Sub(state.DecidedAt), 0), 2*settings.Interval)
	}
	l.state.DecidedAt = now
	for i := range settings.Pools {
		size := PoolSize{}
		if i < len(measured.Pools) {
			size = measured.Pools[i]
		}
		size.Requested = min(max(size.Requested, 0), maxReplicas)
		size.Stuck = min(max(size.Stuck, 0), size.Requested)
		size.Running = min(max(size.Running, 0), size.Requested-size.Stuck)
		if !isPositive(size.Capacity) || size.Capacity > maxRate {
			size.Capacity = measured.ProducerCapacity
		}
		l.sizes = append(l.sizes, size)
	}
	if delay := percentile95(measured.StartDelays); delay > 0 {
		l.state.StartDelay = min(delay, settings.MaxStartDelay)
	}
	return l
}

// percentile95 returns the nearest-rank 95th percentile of the positive delays, or 0.
func percentile95(delays []time.Duration) time.Duration {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(delays)), func(d time.Duration) bool { return d <= 0 })
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*95+99)/100-1]
}

// isUsable reports whether the measurement has all numbers that the rule needs, each in its range.
func (l *law) isUsable() bool {
	m := &l.m
	for _, rate := range []float64{m.ProducerCapacity, m.ConsumerCapacity} {
		if !isPositive(rate) || rate > maxRate {
			return false
		}
	}
	for _, samples := range []float64{m.Queue, m.QueueCapacity, m.InFlight} {
		if !(samples >= 0 && samples <= maxSamples) {
			return false
		}
	}
	if !isPositive(m.Batch) || m.Batch > maxSamples || len(l.sizes) == 0 {
		return false
	}
	m.Starved, m.Blocked = share(m.Starved), share(m.Blocked)
	m.StarvedLast, m.BlockedLast = share(m.StarvedLast), share(m.BlockedLast)
	l.state.ProducerCapacity, l.state.ConsumerCapacity = m.ProducerCapacity, m.ConsumerCapacity
	return true
}

// share clamps a share of time; what is no number is 0.
func share(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}

// request computes how many samples per second, and so how many producers, the consumer needs.
func (l *law) request() {
	m := &l.m
	staleness := l.staleness()
	// Samples in the queue and in flight may together be staleness+1 batches.
	l.room = (staleness+1)*m.Batch - m.InFlight
	l.target = max(m.Batch, l.TargetShare*staleness*m.Batch-m.InFlight)
	if m.QueueCapacity > 0 {
		l.target = min(l.target, l.QueueShare*m.QueueCapacity)
	}
	l.target = max(min(l.target, l.QueueShare*l.room), 0)

	// k is the largest gain whose loop with this delay does not overshoot. ki places the pole of
	// the integral at half the speed.
	l.correct()
	delay := max(l.MinStartDelay, l.state.StartDelay).Seconds()
	k := 1 / (math.E * delay)
	ki := k * k / 4
	missing := l.target - m.Queue
	l.integrate(missing, ki)
	capacity := l.state.Correction * m.ConsumerCapacity
	bound := l.CorrectionShare * capacity
	correction := min(max(k*missing+ki*l.state.Integral, -bound), bound)
	// An empty queue feels every noise, so it is filled faster.
	if m.Queue < m.Batch {
		correction = max(correction, min(l.UrgentShare*capacity, bound))
	}
	// A full queue blocks producers and ages samples.
	if m.Queue > l.FullQueue*l.target {
		correction = min(correction, max(-l.UrgentShare*capacity, -bound))
	}
	l.rate = capacity + correction
	l.want = l.rate / l.unit()
	// A growth takes effect after a delay, a shrink at once.
	trend := min(max(m.ConsumerTrend-m.ProducerTrend, -maxTrend), maxTrend)
	ahead := 1 + trend*min(l.Lookahead*delay, maxLookahead)
	// One round may be noise. With an empty queue it is more likely the beginning of a step.
	if m.Queue < m.Batch && m.Surge > 1 {
		ahead = max(ahead, min(m.Surge, maxSurge))
	}
	l.want *= max(1, ahead)
}

// staleness returns the bound on staleness, in versions.
func (l *law) staleness() float64 {
	for _, bound := range []float64{l.MaxStaleness, l.m.MaxStaleness} {
		if isPositive(bound) {
			return min(max(bound, 1), 1000)
		}
	}
	return defaultStaleness
}

// integrate adds the error of the queue to the integral. While producers start the error says
// nothing about the size, so the integral waits. Its part of the rate is bounded (anti-windup).
func (l *law) integrate(missing, ki float64) {
	if l.starting() == 0 {
		l.state.Integral += missing * l.elapsed.Seconds()
	}
	bound := l.IntegralShare * l.state.Correction * l.m.ConsumerCapacity / ki
	l.state.Integral = min(max(l.state.Integral, -bound), bound)
}

// starting returns how many producers were requested and neither report nor are stuck.
func (l *law) starting() int32 {
	var sum int32
	for _, size := range l.sizes {
		sum += size.Requested - size.Stuck - size.Running
	}
	return sum
}

// working returns how many producers run or start. The rule does not count on stuck ones.
func (l *law) working() int32 {
	var sum int32
	for _, size := range l.sizes {
		sum += size.Requested - size.Stuck
	}
	return sum
}

// unit returns the mean capacity of the producers.
func (l *law) unit() float64 {
	sum := 0.0
	for _, size := range l.sizes {
		sum += float64(size.Requested-size.Stuck) * size.Capacity
	}
	if n := l.working(); n > 0 && sum > 0 {
		return sum / float64(n)
	}
	return l.sizes[0].Capacity
}

// decide applies the dead band, the rate limits and the bounds.
func (l *law) decide() Decision {
	n := l.working()
	goal := rounded(l.want)
	band := max(1, l.DeadBand*float64(n))
	if l.m.Queue > l.FullQueue*l.target && goal < n {
		band = max(1, band/2)
	}
	isUrgent := l.m.Queue < l.m.Batch
	switch {
	case math.Abs(l.want-float64(n)) < band:
		return l.keep(ReasonBalanced, "the size is inside the dead band")
	case goal > n && !isUrgent && l.isWithin(l.state.GrownAt, l.GrowInterval):
		return l.keep(ReasonCoolingDown, fmt.Sprintf("%s, and a growth was less than %s ago", areDue(goal), l.GrowInterval))
	case goal > n:
		return l.resize(min(goal, 2*n+8))
	case l.starting() > 0:
		return l.keep(ReasonStarting, fmt.Sprintf("%s, and %s still", suffice(goal), english.Plural(int(l.starting()), "starts", "start")))
	case l.isWithin(l.state.ShrunkAt, l.ShrinkInterval):
		return l.keep(ReasonCoolingDown, fmt.Sprintf("%s, and a shrink was less than %s ago", suffice(goal), l.ShrinkInterval))
	default:
		return l.resize(min(rounded(l.want*(1+l.DeadBand*l.ShrinkMargin)), n))
	}
}

// rounded returns the number of replicas for a fraction. A quarter of a replica is left to the queue.
func rounded(want float64) int32 {
	return int32(min(max(math.Ceil(want-0.25), 0), maxReplicas))
}

// isWithin reports whether a time is less than a duration ago.
func (l *law) isWithin(at time.Time, d time.Duration) bool {
	return !at.IsZero() && l.now.Sub(at) < d
}

// resize returns a decision for a total.
func (l *law) resize(goal int32) Decision {
	counts := l.spread(goal)
	d := l.decision(counts)
	n := l.working()
	switch {
	case !d.Resize && goal < n && l.isGrouped():
		d.Reason = ReasonAtBounds
		d.Message = l.describe(suffice(goal) + ", and the queue takes back whole groups only")
	case !d.Resize:
		d.Reason = ReasonAtBounds
		d.Message = l.describe(areDue(goal) + ", and the pools have no others")
	case goal > n:
		d.Reason, d.Next.GrownAt, d.Next.OffSince = ReasonGrown, l.now, l.now
		d.Message = l.describe(fmt.Sprintf("from %d to %s", l.requested(), producers(d.Replicas)))
	default:
		d.Reason, d.Next.ShrunkAt, d.Next.OffSince = ReasonShrunk, l.now, l.now
		d.Message = l.describe(fmt.Sprintf("from %d to %s", l.requested(), producers(d.Replicas)))
	}
	return d
}

// keep returns a decision that changes nothing but what the bounds demand.
func (l *law) keep(reason, why string) Decision {
	d := l.decision(l.clamped())
	d.Reason, d.Message = reason, l.describe(why)
	if d.Resize {
		d.Reason, d.Message = ReasonAtBounds, l.describe(fmt.Sprintf("the bounds change %s to %d", producers(l.requested()), d.Replicas))
	}
	return d
}

// decision returns a decision with these counts.
func (l *law) decision(counts []int32) Decision {
	d := Decision{
		Desired: rounded(l.want), Pools: counts, TargetQueue: l.target,
		Next: l.state, NextAt: l.now.Add(l.Interval),
	}
	if l.m.Queue < l.target/2 || l.want == 0 {
		d.NextAt = l.now.Add(l.UrgentInterval)
	}
	for i, count := range counts {
		d.Replicas += count
		d.Resize = d.Resize || count != l.sizes[i].Requested
	}
	return d
}

// describe adds the measurement to a message.
func (l *law) describe(what string) string {
	if l.want == 0 {
		return what
	}
	corrected := ""
	if l.state.Correction != 1 {
		corrected = fmt.Sprintf(", and by the time that they wait %.2g times as many are right", l.state.Correction)
	}
	return fmt.Sprintf("%s: the consumer takes %.4g samples/s, a producer makes %.4g, and %.0f of %.0f samples wait%s",
		what, l.m.ConsumerCapacity, l.unit(), l.m.Queue, l.target, corrected)
}

func producers(count int32) string { return english.Plural(int(count), "producer", "") }

func areDue(count int32) string {
	return english.Plural(int(count), "producer is", "producers are") + " due"
}

func suffice(count int32) string {
	return english.Plural(int(count), "producer suffices", "producers suffice")
}

// limit returns which limit no size of the producers removes, and what would help.
func (l *law) limit() (reason, message string) {
	starves, blocks := l.m.Starved > l.StarvedShare, l.m.Blocked > l.BlockedShare
	isAtMost, isAtLeast := true, true
	for i, size := range l.sizes {
		isAtMost = isAtMost && size.Requested >= l.Pools[i].Max
		isAtLeast = isAtLeast && size.Requested <= l.Pools[i].Min
	}
	switch {
	case l.room < l.m.Batch:
		return LimitStaleness, fmt.Sprintf("%.0f samples are in flight, and a staleness of %.4g versions leaves room for %.0f more, less than a batch of %.0f: raise maxStaleness, or reduce what a producer has in flight", l.m.InFlight, l.staleness(), max(l.room, 0), l.m.Batch)
	case starves && blocks:
		return LimitStaleness, fmt.Sprintf("producers are blocked %.0f %% of the time while the consumer waits %.0f %%: raise maxStaleness or the capacity of the queue", 100*l.m.Blocked, 100*l.m.Starved)
	case starves && l.m.Queue > l.m.Batch:
		return LimitRange, fmt.Sprintf("the consumer waits %.0f %% of the time although %.0f samples wait: it waits for something else than producers", 100*l.m.Starved, l.m.Queue)
	case starves && isAtMost && rounded(l.want) > l.requested():
		return LimitRange, fmt.Sprintf("the consumer waits %.0f %% of the time with the maximum of %s: raise maxReplicas to %d", 100*l.m.Starved, producers(l.requested()), rounded(l.want))
	case blocks && isAtLeast:
		return LimitRange, fmt.Sprintf("producers are blocked %.0f %% of the time with the minimum of %d: lower minReplicas to %d", 100*l.m.Blocked, l.requested(), rounded(l.want))
	default:
		return "", ""
	}
}
