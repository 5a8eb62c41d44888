// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "math"

// MaxSpan bounds Observation.Span.
const MaxSpan = 5

const (
	// mostCrossing bounds how many times as long the network takes across domains.
	mostCrossing = 1000
	// leastNetwork is the least part of a pass that the network takes between nodes where a wider span was measured, too. A network
	// that takes no time would take none across domains.
	leastNetwork = 0.01
)

// Crossings is how many times as long the network between nodes takes by the span, beside the least span that was measured; 0 for
// spans that were not. Place 0 is not used.
type Crossings [MaxSpan + 1]float64

// Across returns the throughput where the network between nodes takes that many times as long.
func (t Throughput) Across(times float64) Throughput {
	t.AlphaN, t.BetaN = t.AlphaN*times, t.BetaN*times
	return t
}

// spanOf returns the span of an observation whose span matters and is known, else 0.
func (o *Observation) spanOf() int {
	if o.Nodes < 2 || o.Span < 1 || o.Span > MaxSpan {
		return 0
	}
	return o.Span
}

// Base returns the least known span of observations on several nodes, 0 if there is none.
func Base(observations []Observation) int {
	base := 0
	for i := range observations {
		if span := observations[i].spanOf(); span > 0 && (base == 0 || span < base) {
			base = span
		}
	}
	return base
}

// FitAcross returns the throughput at the least known span, and how much longer the network takes at the others: a single factor, as
// there are seldom more than a few observations of each. Observations without a known span count for the least one.
func FitAcross(observations []Observation) (Throughput, Crossings) {
	var crossings Crossings
	base := Base(observations)
	within, across := make([]Observation, 0, len(observations)), map[int][]Observation{}
	for i := range observations {
		if span := observations[i].spanOf(); span > base {
			across[span] = append(across[span], observations[i])
		} else {
			within = append(within, observations[i])
		}
	}
	t := Fit(within, nil)
	if base == 0 {
		return t, crossings
	}
	crossings[base] = 1
	if len(across) > 0 {
		t.AlphaN = math.Max(t.AlphaN, leastNetwork*meanPass(within))
	}
	for span := base + 1; span <= MaxSpan; span++ {
		if len(across[span]) > 0 {
			crossings[span] = t.crossing(across[span])
		}
	}
	return t, crossings
}

// meanPass returns the mean time of a pass that does not synchronize on several nodes.
func meanPass(observations []Observation) float64 {
	sum, count := 0.0, 0.0
	for i := range observations {
		if observations[i].Nodes > 1 {
			sum, count = sum+observations[i].Accumulate, count+1
		}
	}
	return sum / math.Max(count, 1)
}

// crossing returns the factor of the network that explains observations best, by their logarithms: a golden section search, as
// the error has one minimum where all observations are longer with a slower network.
func (t Throughput) crossing(observations []Observation) float64 {
	loss := func(logarithm float64) float64 {
		across, sum := t.Across(math.Exp(logarithm)), 0.0
		for _, o := range observations {
			predicted := across.combine(o.Accumulate, across.synchronize(o.Nodes, o.Replicas))
			sum += math.Pow(math.Log(predicted/o.Step), 2)
		}
		return sum
	}
	golden := (math.Sqrt(5) - 1) / 2
	low, high := 0.0, math.Log(mostCrossing)
	for high-low > 1e-3 {
		left, right := high-golden*(high-low), low+golden*(high-low)
		if loss(left) <= loss(right) {
			high = right
		} else {
			low = left
		}
	}
	if low == 0 {
		return 1
	}
	return math.Exp((low + high) / 2)
}
