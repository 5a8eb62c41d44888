// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"time"
)

const (
	// minOff is how long the queue must have been off on one side, with the present producers, until waiting counts
	// more than the capacities. It must have been off for a batch and a half as well: a consumer may report only then.
	minOff = 165 * time.Second
	// probe is by how much more producers are right if the queue stays empty and the consumer never reports that it waits.
	probe = 0.25
	// emptyShare is the part of a batch below which the queue is empty.
	emptyShare = 0.125
	// maxOff is how long a batch and a half may take for a correction upwards. The cold start of longer steps looks like
	// a capacity that is wrong.
	maxOff = 5 * time.Minute
	// tryGain is by how much a correction must raise what the consumer takes.
	tryGain = 0.02
	// blockedMuch is the blocked share of time from which fewer producers are right, and release by how much a
	// correction falls from blockedLittle on.
	blockedMuch, blockedLittle, release = 0.15, 0.02, 0.08
)

// correct replaces the ratio of the capacities by what waiting shows, if both disagree for minutes. While n producers
// run without a pause, and the consumer waits for a share s of its time, n/(1-s) are right. While they are
// blocked for a share b, and the consumer never waits, n*(1-b) are. Neither needs a capacity.
func (l *law) correct() {
	m := &l.m
	// What was before the last resize is in the mean, and not in the last round.
	starved, blocked := min(m.Starved, m.StarvedLast), min(m.Blocked, m.BlockedLast)
	l.watch(starved, blocked)
	running := float64(l.working() - l.starting())
	switch {
	case l.state.Off == 0 || running == 0 || l.now.Sub(l.state.OffSince) < l.settled():
	case l.state.Off < 0:
		l.correctUp(running, starved)
	default:
		l.correctDown(running, blocked)
	}
}

// watch records on which side the queue is off, and since when.
func (l *law) watch(starved, blocked float64) {
	m, off := &l.m, 0
	switch {
	case m.Queue < m.Batch && blocked < l.StarvedShare:
		off = -1
	case m.Queue > l.FullQueue*l.target && starved < l.StarvedShare:
		off = 1
	}
	if off >= 0 {
		l.state.Tried = 0
	}
	if off != l.state.Off || l.starting() > 0 || l.state.OffSince.IsZero() {
		l.state.Off, l.state.OffSince = off, l.now
	}
}

func (l *law) correctUp(running, starved float64) {
	switch m := &l.m; {
	case starved > l.StarvedShare:
		l.try(running/max(1-starved, 1/maxCorrection), m.ConsumerCapacity*(1-starved))
	case m.Queue < emptyShare*m.Batch && m.Starved == 0:
		l.try(running*(1+probe), m.ConsumerCapacity)
	}
}

func (l *law) correctDown(running, blocked float64) {
	switch {
	case blocked > blockedMuch:
		l.becomes(running * (1 - blocked))
	case blocked > blockedLittle && l.state.Correction > 1:
		l.state.Correction, l.state.OffSince = max(1, l.state.Correction*(1-release)), l.now
	}
}

// settled returns how long the queue must be off.
func (l *law) settled() time.Duration {
	batches := 1.5 * l.m.Batch / (l.state.Correction * l.m.ConsumerCapacity)
	return max(minOff, time.Duration(min(batches, maxSilence.Seconds())*float64(time.Second)))
}

// try corrects upwards for a consumer that takes a rate now. If the last correction did not raise the rate, the consumer
// waits for something else than producers: the correction is taken back, and no other is tried until the queue fills.
func (l *law) try(producers, rate float64) {
	if l.settled() > maxOff {
		return
	}
	if rate < l.state.Tried*(1+tryGain) {
		if l.state.Tried < math.MaxFloat64 {
			l.state.Correction, l.state.Tried = l.state.Before, math.MaxFloat64
		}
		return
	}
	l.state.Tried, l.state.Before = rate, l.state.Correction
	l.becomes(producers)
}

// becomes sets the correction with which so many producers are right.
func (l *law) becomes(producers float64) {
	ratio := l.m.ConsumerCapacity / l.unit()
	l.state.Correction = min(max(producers/ratio, 1/maxCorrection), maxCorrection)
	l.state.Integral, l.state.OffSince = 0, l.now
}
