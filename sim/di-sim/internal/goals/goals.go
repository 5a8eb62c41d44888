// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package goals measures the figures that docs/simulator.md promises, each beside its goal.
package goals

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// Figure is a measured figure and its goal.
type Figure struct {
	Name, Goal, Measured string
	Passed               bool
}

// atMost returns a figure whose goal is a maximum.
func atMost(name string, goal, measured float64) Figure {
	return Figure{Name: name, Goal: fmt.Sprintf("<= %.2f", goal), Measured: fmt.Sprintf("%.3f", measured), Passed: measured <= goal}
}

// beside returns a figure that has no goal.
func beside(name string, measured float64) Figure {
	return Figure{Name: name, Goal: "-", Measured: fmt.Sprintf("%.3f", measured), Passed: true}
}

// bench runs each experiment once.
type bench struct {
	traces    *experiment.Traces
	workloads map[string][]experiment.Workload
	loads     []string
	progress  io.Writer
	outcomes  map[string]*experiment.Outcome
}

// part is some figures that are measured together.
type part struct {
	name    string
	measure func(*bench) ([]Figure, error)
}

func parts() []part {
	return []part{
		{"baselines", (*bench).baselines}, {"pollux", (*bench).pollux}, {"rows", (*bench).rows}, {"tails", (*bench).tails},
		{"restarts", (*bench).restarts}, {"rounds", (*bench).rounds}, {"totals", (*bench).wrongTotals}, {"nodes", (*bench).lostNodes},
		{"overload", (*bench).overload}, {"constants", (*bench).constants},
	}
}

// Parts returns the names of the parts that can be measured.
func Parts() []string {
	var names []string
	for _, one := range parts() {
		names = append(names, one.name)
	}
	return names
}

// Measure measures the figures of some parts. If it is quick, it takes two workloads of the loads 1.0
// and 2.0 each, and leaves out the port of Pollux, which takes minutes.
//
// The table of each part is written to the output as soon as it is measured. Measure returns how many
// figures there are, and how many are missed.
func Measure(traces *experiment.Traces, names []string, quick bool, output, progress io.Writer) (count, missed int, err error) {
	b := &bench{
		traces: traces, progress: progress, loads: []string{"0.5", "1.0", "1.5", "2.0"},
		workloads: map[string][]experiment.Workload{}, outcomes: map[string]*experiment.Outcome{},
	}
	most := 0
	if quick {
		most, b.loads = 2, []string{"1.0", "2.0"}
	}
	for _, load := range b.loads {
		if b.workloads[load], err = traces.Workloads(load, most); err != nil {
			return 0, 0, err
		}
	}
	for _, one := range parts() {
		if !slices.Contains(names, one.name) || quick && one.name == "pollux" {
			continue
		}
		figures, err := one.measure(b)
		if err != nil {
			return count, missed, err
		}
		more, err := Print(output, figures)
		if err != nil {
			return count, missed, err
		}
		count, missed = count+len(figures), missed+more
	}
	return count, missed, nil
}

// run returns the outcome of a policy at a load by the rules of the artifact.
func (b *bench) run(policy, row, load string) (*experiment.Outcome, error) {
	return b.runAs("", policy, row, b.workloads[load], experiment.Artifact())
}

// runAs returns the outcome by other settings, whose name distinguishes them.
func (b *bench) runAs(name, policy, row string, workloads []experiment.Workload, settings *experiment.Settings) (*experiment.Outcome, error) {
	key := fmt.Sprint(name, " ", policy, " ", row, " ", workloads[0].Load)
	if known := b.outcomes[key]; known != nil {
		return known, nil
	}
	fmt.Fprintln(b.progress, "running", key)
	found, err := experiment.FindPolicy(policy)
	if err != nil {
		return nil, err
	}
	reports := simulator.Row{}
	if row != "" {
		if reports, err = experiment.FindRow(row); err != nil {
			return nil, err
		}
	}
	outcome, err := experiment.Run(&found, reports, workloads, settings)
	b.outcomes[key] = outcome
	return outcome, err
}

// recorded returns the pooled completion times that are recorded for workloads.
func (b *bench) recorded(policy, load string) []int {
	var all []int
	for i := range b.workloads[load] {
		for _, seconds := range b.traces.Recorded(policy, &b.workloads[load][i]) {
			all = append(all, seconds)
		}
	}
	slices.Sort(all)
	return all
}

// Print writes the figures as a table, and returns how many are missed.
func Print(to io.Writer, figures []Figure) (missed int, err error) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "figure\tgoal\tmeasured\t")
	for _, figure := range figures {
		word := "passed"
		switch {
		case !figure.Passed:
			word = "missed"
			missed++
		case figure.Goal == "-":
			word = ""
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", figure.Name, figure.Goal, figure.Measured, word)
	}
	if err := table.Flush(); err != nil {
		return missed, fmt.Errorf("printing the table: %w", err)
	}
	return missed, nil
}
