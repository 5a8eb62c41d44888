// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts outcomes of a group and prints those that need attention.
type tally struct {
	group string
	out   io.Writer
	began time.Time
	// total is the number of mutants.
	total int
	// listed are the mutants that change nothing.
	listed map[string]bool

	mutex sync.Mutex
	done  int
	// used are the listed mutants that have survived.
	used   map[string]bool
	counts record
}

func newTally(group string, mutants []*mutant, equivalent map[string]bool, out io.Writer) *tally {
	t := &tally{group: group, out: out, began: time.Now(), total: len(mutants), listed: map[string]bool{}, used: map[string]bool{}, counts: record{}}
	folders := map[string]bool{}
	for _, m := range mutants {
		folders[m.path()] = true
		t.counts[m.path()] = count{group: group}
	}
	for name := range equivalent {
		if file, _, _ := strings.Cut(name, ": "); folders[file] {
			t.listed[name] = true
		}
	}
	return t
}

// report counts a mutant. Every hundredth call prints the progress of the run.
func (t *tally) report(m *mutant, survived bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.done++
	of := t.counts[m.path()]
	of.mutants++
	switch {
	case survived && t.listed[m.name()]:
		t.used[m.name()] = true
	case survived:
		of.survive++
		fmt.Fprintf(t.out, "%s:%d: survived: %s\n", m.path(), m.line, m.name())
	}
	t.counts[m.path()] = of
	if t.done%100 == 0 {
		passed := time.Since(t.began)
		left := passed / time.Duration(t.done) * time.Duration(t.total-t.done)
		fmt.Fprintf(t.out, "%s: %d of %d mutants, %s left\n", t.group, t.done, t.total, left.Round(time.Second))
	}
}

// end prints the totals of each file and of the group. It returns an error if more mutants survive than a complete
// run has recorded, or if a listed one does not. It writes the record otherwise.
func (t *tally) end(path string, complete bool) error {
	for _, file := range slices.Sorted(maps.Keys(t.counts)) {
		if of := t.counts[file]; of.survive > 0 {
			fmt.Fprintf(t.out, "%s: %d of %d survived\n", file, of.survive, of.mutants)
		}
	}
	total := t.counts.of(t.group)
	fmt.Fprintf(t.out, "%s: %d mutants: %d killed, %d survived, %d change nothing; %s\n", t.group, t.total,
		t.total-total.survive-len(t.used), total.survive, len(t.used), time.Since(t.began).Round(time.Second))
	if !complete {
		return nil
	}
	for name := range t.listed {
		if !t.used[name] {
			return fmt.Errorf("listed as one that changes nothing, but none that survives: %s", name)
		}
	}
	recorded, err := readRecord(path)
	if err != nil {
		return err
	}
	before := recorded.of(t.group)
	if (before.mutants > 0 || path == "") && total.survive > before.survive {
		return fmt.Errorf("no test notices %d of the changes above, more than the %d of the record", total.survive, before.survive)
	}
	if path == "" {
		return nil
	}
	return recorded.replace(t.group, t.counts).write(path)
}
