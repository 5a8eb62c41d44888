// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/soak/check"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/figures"
)

// report is what a run has done and found.
type report struct {
	operations tally
	faults     map[string]int
	own        map[string]int
	violations []check.Violation
	counted    map[string]int
	// rests are how long the jobs took to come to rest.
	rests []time.Duration
	// first and last are the first and the last usage of each program.
	first, last map[string]*history.Usage
	// orders says what the search for an order of the requests to resize has covered.
	orders   string
	seed     uint64
	revision int64
}

// tally counts the calls of each operation by outcome: done, refused, and without an answer that says so.
type tally map[string]*[3]int

func (t tally) add(call *history.Call) {
	if t[call.Operation] == nil {
		t[call.Operation] = &[3]int{}
	}
	switch {
	case call.Done():
		t[call.Operation][0]++
	case call.Refused:
		t[call.Operation][1]++
	default:
		t[call.Operation][2]++
	}
}

func newReport() *report {
	return &report{first: map[string]*history.Usage{}, last: map[string]*history.Usage{}}
}

func (r *report) usage(used *history.Usage) {
	if used.Jobs == 0 {
		return
	}
	if r.first[used.Program] == nil {
		r.first[used.Program] = used
	}
	r.last[used.Program] = used
}

// finish takes what the checker found.
func (r *report) finish(s *soak) {
	r.violations, r.counted, r.seed = s.world.checker.Finish(), s.world.checker.Counted(), s.seed
	r.operations, r.faults, r.revision, r.own = s.world.calls, s.faults.done, s.world.revision.Load(), map[string]int{}
	jobs, calls, undecided := s.world.checker.Searched()
	r.orders = fmt.Sprintf("%d requests and reads of the sizes of %d jobs were ordered; for %d of the jobs the search ran out of time.", calls, jobs, undecided)
	for _, kind := range faultKinds() {
		r.faults[kind.name] += 0
	}
	for _, each := range s.world.instances {
		r.own[each.kind] += each.own
	}
}

// table returns the figures as Markdown.
func (r *report) table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s with %d jobs, seed %d; %d revisions of etcd.\n", *runTime, *jobCount, r.seed, r.revision)
	counts := func(title string, of map[string]int) {
		fmt.Fprintf(&out, "\n| %s | number |\n| --- | --- |\n", title)
		for _, name := range slices.Sorted(maps.Keys(of)) {
			fmt.Fprintf(&out, "| %s | %d |\n", name, of[name])
		}
	}
	counts("fault", r.faults)
	fmt.Fprintf(&out, "\n| operation | done | refused | unknown |\n| --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(r.operations)) {
		fmt.Fprintf(&out, "| %s | %d | %d | %d |\n", name, r.operations[name][0], r.operations[name][1], r.operations[name][2])
	}
	counts("broken promise", r.counted)
	fmt.Fprintf(&out, "\n%s\n", r.orders)
	counts("program that ended by itself", r.own)
	fmt.Fprintf(&out, "\nJobs came to rest %d times, within %s at most.\n", len(r.rests), slices.Max(append(r.rests, 0)).Round(100*time.Millisecond))
	fmt.Fprintf(&out, "\n| program | heap, first and last | goroutines | open files | stored |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(r.first)) {
		first, last := r.first[name], r.last[name]
		fmt.Fprintf(&out, "| %s | %s, %s | %d, %d | %d, %d | %s, %s |\n", name, figures.Mebibytes(first.HeapBytes), figures.Mebibytes(last.HeapBytes),
			first.Goroutines, last.Goroutines, first.Files, last.Files, figures.Mebibytes(first.StoreBytes), figures.Mebibytes(last.StoreBytes))
	}
	return out.String()
}

// These lines enclose the figures in the page.
const (
	figuresBegin = "<!-- figures: make soak writes them -->\n"
	figuresEnd   = "<!-- end of figures -->\n"
)

// write replaces the figures in docs/reliability.md.
func (r *report) write() error {
	path := filepath.Join(testkit.Root(), "docs", "reliability.md")
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	before, rest, hasBegin := bytes.Cut(content, []byte(figuresBegin))
	_, after, hasEnd := bytes.Cut(rest, []byte(figuresEnd))
	if !hasBegin || !hasEnd {
		return fmt.Errorf("%s has no lines %q and %q", path, figuresBegin, figuresEnd)
	}
	page := slices.Concat(before, []byte(figuresBegin+"\n"+r.table()+"\n"+figuresEnd), after)
	if err := os.WriteFile(path, page, 0o600); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
