// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// record contains how many mutants of each file exist and survive. It may only fall.
type record map[string]count

// count counts the mutants of a file of a group.
type count struct {
	group            string
	mutants, survive int
}

const recordHead = "# Group, file, mutants, and those that no test notices. make mutation fails if a group has more of these.\n"

// readRecord reads a record; one that does not exist is empty.
func readRecord(path string) (record, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return nil, err
	}
	read := record{}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var file string
		var of count
		if _, err := fmt.Sscan(line, &of.group, &file, &of.mutants, &of.survive); err != nil {
			return nil, fmt.Errorf("reading %s: %q: %w", path, line, err)
		}
		read[file] = of
	}
	return read, nil
}

// of returns the totals of a group.
func (r record) of(group string) count {
	total := count{group: group}
	for _, one := range r {
		if one.group == group {
			total.mutants += one.mutants
			total.survive += one.survive
		}
	}
	return total
}

// replace returns the record with other counts of a group.
func (r record) replace(group string, counts record) record {
	replaced := maps.Clone(r)
	maps.DeleteFunc(replaced, func(_ string, one count) bool { return one.group == group })
	maps.Copy(replaced, counts)
	return replaced
}

func (r record) write(path string) error {
	out := bytes.NewBufferString(recordHead)
	files := slices.SortedFunc(maps.Keys(r), func(a, b string) int {
		return strings.Compare(r[a].group+" "+a, r[b].group+" "+b)
	})
	for _, file := range files {
		fmt.Fprintf(out, "%s %s %d %d\n", r[file].group, file, r[file].mutants, r[file].survive)
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
