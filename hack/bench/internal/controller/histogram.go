// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// histogram is a histogram of durations in seconds.
type histogram struct {
	count uint64
	sum   float64
	// bounds are the upper bounds of the buckets, counts the cumulative counts.
	bounds []float64
	counts []uint64
}

// readHistogram reads a histogram without labels from metrics. A histogram that has observed nothing may be
// absent.
func readHistogram(ctx context.Context, url, name string) (h histogram, err error) {
	raw, err := program.Read(ctx, url)
	if err != nil {
		return h, err
	}
	for line := range strings.Lines(string(raw)) {
		sample, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, failed := strconv.ParseFloat(text, 64)
		if !strings.HasPrefix(sample, name) || failed != nil {
			continue
		}
		switch sample = strings.TrimPrefix(sample, name); sample {
		case "_sum":
			h.sum = value
		case "_count":
			h.count = uint64(value)
		default:
			bound, failed := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(sample, `_bucket{le="`), `"}`), 64)
			if failed != nil {
				return h, fmt.Errorf("parsing %s: sample %s", url, line)
			}
			h.bounds, h.counts = append(h.bounds, bound), append(h.counts, uint64(value))
		}
	}
	return h, nil
}

// since returns what a histogram has observed since an earlier reading.
func (h *histogram) since(before histogram) histogram {
	observed := histogram{count: h.count - before.count, sum: h.sum - before.sum, bounds: h.bounds}
	for i, count := range h.counts {
		if i < len(before.counts) {
			count -= before.counts[i]
		}
		observed.counts = append(observed.counts, count)
	}
	return observed
}

func (h *histogram) mean() float64 { return h.sum / math.Max(float64(h.count), 1) }

// quantile interpolates a quantile within its bucket, as Prometheus does.
func (h *histogram) quantile(of float64) float64 {
	wanted, lower, below := of*float64(h.count), 0.0, uint64(0)
	for i, bound := range h.bounds {
		if count := h.counts[i]; count > below && float64(count) >= wanted {
			if math.IsInf(bound, 1) {
				return lower
			}
			return lower + (bound-lower)*(wanted-float64(below))/float64(count-below)
		}
		lower, below = bound, h.counts[i]
	}
	return lower
}
