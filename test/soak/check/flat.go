// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/test/soak/history"
)

// flat is the promise that what programs use does not grow over the run.
type flat struct {
	series map[string]map[string][]int64
	// idle is the largest number of goroutines that a program of a kind has without jobs.
	idle map[string]int
}

// These decide what growth is. Fewer samples say nothing.
const (
	minSamples = 6
	maxRatio   = 1.5
)

// maxForJobs is how many goroutines more a program may have for any number of jobs than it has without. It has some for
// its connections, and none for each job.
const maxForJobs = 25

// limit is the growth that a loaded program may have anyway.
type limit struct {
	what  string
	slack int64
	of    func(*history.Usage) int64
}

func limits() []limit {
	return []limit{
		{"heap bytes", 32 << 20, func(used *history.Usage) int64 { return used.HeapBytes }},
		{"goroutines", 100, func(used *history.Usage) int64 { return int64(used.Goroutines) }},
		{"open files", 50, func(used *history.Usage) int64 { return int64(used.Files) }},
		{"stored bytes", 64 << 20, func(used *history.Usage) int64 { return used.StoreBytes }},
	}
}

func newFlat() *flat { return &flat{series: map[string]map[string][]int64{}, idle: map[string]int{}} }

func (*flat) name() string { return "What each program uses does not grow" }

func (f *flat) see(_ *world, entry *history.Entry) []broken {
	used := entry.Usage
	if used == nil {
		return nil
	}
	kind, _, _ := strings.Cut(used.Program, "-")
	if used.Jobs == 0 {
		f.idle[kind] = max(f.idle[kind], used.Goroutines)
		return nil
	}
	if f.series[used.Program] == nil {
		f.series[used.Program] = map[string][]int64{}
	}
	for _, each := range limits() {
		f.series[used.Program][each.what] = append(f.series[used.Program][each.what], each.of(used))
	}
	idle, isKnown := f.idle[kind]
	// Clients of di-server keep connections open, which have goroutines.
	if isKnown && kind != "server" && used.Goroutines > idle+maxForJobs {
		return []broken{{name: used.Program, story: fmt.Sprintf("it has %d goroutines with %d jobs, and at most %d without", used.Goroutines, used.Jobs, idle)}}
	}
	return nil
}

func (f *flat) end(*world) []broken {
	var found []broken
	for _, program := range slices.Sorted(maps.Keys(f.series)) {
		for _, each := range limits() {
			values := f.series[program][each.what]
			if len(values) < minSamples {
				continue
			}
			third := len(values) / 3
			// The first samples are of programs that have just started.
			early, late := median(values[1:1+third]), median(values[len(values)-third:])
			if float64(late) > maxRatio*float64(early)+float64(each.slack) {
				found = append(found, broken{name: program, story: fmt.Sprintf("its %s grow from %d to %d: %v", each.what, early, late, values)})
			}
		}
	}
	return found
}

func median(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
