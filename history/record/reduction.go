// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"
	"slices"
	"time"
)

const (
	// MaxPoints bounds the points of each curve that a reader asks for.
	MaxPoints = 2_000
	// maxReduced bounds the curves of a Reduction: a job may report other names over time.
	maxReduced = 4 * MaxSeries
)

// Reduction makes curves of at most so many points of any number of samples: the means of equal spans of time.
type Reduction struct {
	from   time.Time
	width  time.Duration
	points int
	series map[string]map[int]reduced
}

// reduced is the mean of a span, and its first sample.
type reduced struct {
	mean  Mean
	at    time.Time
	span  time.Duration
	count int
}

// NewReduction returns one of samples between two times. Others count to the first or the last span.
func NewReduction(from, to time.Time, points int) *Reduction {
	width := max(to.Sub(from)/time.Duration(points), time.Millisecond)
	return &Reduction{from, width, points, map[string]map[int]reduced{}}
}

// Add adds samples.
func (r *Reduction) Add(samples []Sample) {
	for i := range samples {
		sample := &samples[i]
		place := min(max(0, int(sample.At.Sub(r.from)/r.width)), r.points-1)
		for name, value := range sample.Values {
			of, isKnown := r.series[name]
			if !isKnown {
				if len(r.series) == maxReduced {
					continue
				}
				of = map[int]reduced{}
				r.series[name] = of
			}
			one := of[place]
			if one.count == 0 || sample.At.Before(one.at) {
				one.at, one.span = sample.At, sample.Span
			}
			one.count++
			one.mean.Sum, one.mean.Count = one.mean.Sum+value.Sum, one.mean.Count+value.Count
			of[place] = one
		}
	}
}

// Series returns the curves, sorted by name.
func (r *Reduction) Series() []Series {
	curves := make([]Series, 0, len(r.series))
	for _, name := range slices.Sorted(maps.Keys(r.series)) {
		of := r.series[name]
		curve := Series{name, make([]Point, 0, len(of))}
		for _, place := range slices.Sorted(maps.Keys(of)) {
			one := of[place]
			span := one.span
			if one.count > 1 {
				span = max(span, r.width)
			}
			curve.Points = append(curve.Points, Point{one.at, one.mean.Value(), int64(span / time.Second)})
		}
		curves = append(curves, curve)
	}
	return curves
}
