// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// mostReports is how many reports of a number are kept.
const mostReports = 512

// history is what a job reported of itself while it was looked at.
type history struct {
	last   []byte
	series map[string][]float64
}

// add takes a report in, unless it is the last one again.
func (h *history) add(report *v2alpha1.RawObject) {
	if report == nil || bytes.Equal(report.Raw, h.last) {
		return
	}
	h.last = report.Raw
	if h.series == nil {
		h.series = map[string][]float64{}
	}
	var value any
	if json.Unmarshal(report.Raw, &value) != nil {
		return
	}
	h.collect("", value)
}

// collect appends the numbers of a value, however deep they are.
func (h *history) collect(path string, value any) {
	switch value := value.(type) {
	case float64:
		h.series[path] = append(h.series[path], value)
		h.series[path] = h.series[path][max(0, len(h.series[path])-mostReports):]
	case map[string]any:
		for key, inner := range value {
			h.collect(join(path, key), inner)
		}
	case []any:
		for i, inner := range value {
			h.collect(join(path, strconv.Itoa(i)), inner)
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// names returns the names of the numbers, those first that say how well the job
// does.
func (h *history) names() []string {
	var all []string
	for name := range h.series {
		all = append(all, name)
	}
	first := []string{"reward", "return", "throughput"}
	rank := func(name string) int {
		if at := slices.Index(first, name); at >= 0 {
			return at
		}
		return len(first)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	return all
}

// sparkline draws the latest numbers, one to a cell.
func sparkline(series []float64, width int) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	series = series[max(0, len(series)-width):]
	if len(series) == 0 {
		return ""
	}
	least, most := slices.Min(series), slices.Max(series)
	drawn := make([]rune, 0, len(series))
	for _, value := range series {
		at := 0
		if most > least {
			// Halves, as the difference of the two may be more than a float holds.
			at = int((value/2 - least/2) / (most/2 - least/2) * float64(len(bars)-1))
		}
		drawn = append(drawn, bars[at])
	}
	return string(drawn)
}

// number prints a number briefly.
func number(value float64) string {
	return strconv.FormatFloat(value, 'g', 6, 64)
}
