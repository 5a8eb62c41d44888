// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report runs the sections of a benchmark and prints which of their
// limits were missed.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// Section is one table of the report.
type Section struct {
	Name string
	// Run prints the table and returns the limits that were missed.
	Run func(ctx context.Context) (figures.Limits, error)
}

// Options say which sections are run.
type Options struct {
	// Only are the names of the sections to run, separated by commas; all when empty.
	Only string
	// Check makes a limit that was missed an error.
	Check bool
}

// Run runs the sections in their order. One that fails does not stop the others.
func Run(ctx context.Context, out io.Writer, sections []Section, options Options) error {
	wanted, err := wantedOf(sections, options.Only)
	if err != nil {
		return err
	}
	var failed error
	for _, section := range wanted {
		fmt.Fprintf(out, "\n## %s\n\n", section.Name)
		busy, err := program.BusyProcessors(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Before it, others kept %s busy.\n\n", busy)
		missed, err := section.Run(ctx)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", section.Name, err))
		}
		for _, limit := range missed {
			fmt.Fprintf(out, "MISSED: %s\n", limit)
			if options.Check {
				failed = errors.Join(failed, fmt.Errorf("%s: missed: %s", section.Name, limit))
			}
		}
	}
	return failed
}

// wantedOf returns the sections of those names, in their own order.
func wantedOf(sections []Section, only string) ([]Section, error) {
	names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	if len(names) == 0 {
		return sections, nil
	}
	var wanted []Section
	for _, section := range sections {
		if slices.Contains(names, section.Name) {
			wanted = append(wanted, section)
		}
	}
	if len(wanted) != len(names) {
		return nil, fmt.Errorf("-only %s: not all of these are sections", only)
	}
	return wanted, nil
}
