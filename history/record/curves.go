// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"
	"slices"
	"time"
)

// Sample is what a job reported at a time, or the means of what it reported in a span of time.
type Sample struct {
	// At is the time of the report, or the start of the span.
	At time.Time
	// Span is 0 for one report.
	Span   time.Duration
	Values map[string]Mean
}

// Mean is the sum of one series in a sample, and how many reports it is of.
type Mean struct {
	Sum   float64 `json:"sum"`
	Count int64   `json:"count"`
}

// Value returns the mean.
func (m Mean) Value() float64 {
	return m.Sum / float64(m.Count)
}

// Series is the curve of one series, in the order of time.
type Series struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is one point of a curve: the mean from a time on.
type Point struct {
	At    time.Time `json:"at"`
	Value float64   `json:"value"`
	// Seconds is how long the span is that the point is the mean of; 0 for one report.
	Seconds int64 `json:"seconds,omitempty"`
}

// MinSpacing is the least time between two samples of a job; those in between are not recorded.
const MinSpacing = 5 * time.Second

// resolution is the span of means from an age on.
type resolution struct {
	age, span time.Duration
}

// resolutions returns the rules of thinning, the finest first: each point for a day, means of five
// minutes for thirty days, then means of an hour. Each span divides the next one, so that no mean
// is ever split.
func resolutions() []resolution {
	const day = 24 * time.Hour
	return []resolution{{day, 5 * time.Minute}, {30 * day, time.Hour}}
}

// Spans returns the spans of samples that are thinned again, the shortest first.
func Spans() []time.Duration {
	spans := []time.Duration{0}
	for _, rule := range resolutions() {
		spans = append(spans, rule.span)
	}
	return spans[:len(spans)-1]
}

// Thin returns the samples at the resolution of their age, in the order of time. A span becomes a
// mean once all of it is old enough. Sums and counts are preserved, and samples with equal times are
// merged only within a span. Thinning twice equals thinning once.
func Thin(samples []Sample, now time.Time) []Sample {
	type slot struct {
		at   time.Time
		span time.Duration
	}
	var thinned []Sample
	place := map[slot]int{}
	for _, sample := range samples {
		sample.At = sample.At.UTC()
		span := sample.Span
		for _, rule := range resolutions() {
			end := sample.At.Truncate(rule.span).Add(rule.span)
			if now.Sub(end) >= rule.age {
				span = max(span, rule.span)
			}
		}
		if span == 0 {
			thinned = append(thinned, sample)
			continue
		}
		of := slot{sample.At.Truncate(span), span}
		i, exists := place[of]
		if !exists {
			i = len(thinned)
			place[of] = i
			thinned = append(thinned, Sample{At: of.at, Span: span, Values: map[string]Mean{}})
		}
		for name, value := range sample.Values {
			total := thinned[i].Values[name]
			thinned[i].Values[name] = Mean{total.Sum + value.Sum, total.Count + value.Count}
		}
	}
	slices.SortStableFunc(thinned, func(a, b Sample) int { return a.At.Compare(b.At) })
	return thinned
}

// ThinAgain returns when a sample next becomes part of a longer span; false if never.
func ThinAgain(sample Sample) (time.Time, bool) {
	for _, rule := range resolutions() {
		if sample.Span < rule.span {
			return sample.At.Truncate(rule.span).Add(rule.span + rule.age), true
		}
	}
	return time.Time{}, false
}

// Curves returns the samples as one curve for each name, sorted by name.
func Curves(samples []Sample) []Series {
	byName := map[string][]Point{}
	for _, sample := range samples {
		for name, value := range sample.Values {
			byName[name] = append(byName[name], Point{sample.At, value.Value(), int64(sample.Span / time.Second)})
		}
	}
	curves := make([]Series, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		points := byName[name]
		slices.SortStableFunc(points, func(a, b Point) int { return a.At.Compare(b.At) })
		curves = append(curves, Series{name, points})
	}
	return curves
}
