// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// simulate runs each policy, in each of its rows, at each load.
func simulate(traces *experiment.Traces, o *options, progress io.Writer) ([]*experiment.Outcome, error) {
	var outcomes []*experiment.Outcome
	for _, load := range o.loads {
		workloads, err := traces.Workloads(load, o.workloads)
		if err != nil {
			return nil, fmt.Errorf("-loads is %q: %w", load, err)
		}
		for i := range o.policies {
			policy, rows := &o.policies[i], o.rows
			if !policy.IsReporting {
				rows = []simulator.Row{{}}
			}
			for _, row := range rows {
				fmt.Fprintf(progress, "load %s: %s %s\n", load, policy.Name, row.Name)
				outcome, err := experiment.Run(policy, row, workloads, o.settings)
				if err != nil {
					return nil, err
				}
				outcomes = append(outcomes, outcome)
			}
		}
	}
	return outcomes, nil
}

func printTable(to io.Writer, traces *experiment.Traces, outcomes []*experiment.Outcome) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "load\tpolicy\trow\tmean s\tto Pollux\tp50 s\tp99 s\tmakespan s\trestarts/job\tGPU h\tround p50\tround p99\t")
	for _, outcome := range outcomes {
		s := &outcome.Summary
		fmt.Fprintf(table, "%s\t%s\t%s\t%.0f\t%s\t%d\t%d\t%.0f\t%.2f\t%.0f\t%v\t%v\t\n",
			outcome.Load, policyOf(outcome), dash(outcome.Row), s.Mean, ratio(outcome.RatioToRecorded(traces, "pollux")), s.P50, s.P99,
			s.Makespan, s.Restarts, s.GPUHours, s.RoundP50.Round(10*time.Microsecond), s.RoundP99.Round(10*time.Microsecond))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}

// policyOf names the policy of an outcome, and where it ran.
func policyOf(outcome *experiment.Outcome) string {
	if outcome.Cluster != nil {
		return outcome.Policy + " in the operator"
	}
	return outcome.Policy
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func ratio(value float64) string {
	if math.IsNaN(value) {
		return "-"
	}
	return fmt.Sprintf("%.3f", value)
}

func writeJSON(path string, outcomes []*experiment.Outcome) error {
	content, err := json.MarshalIndent(outcomes, "", " ")
	if err == nil {
		err = os.WriteFile(path, append(content, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("-json is %q: must be a file that can be written: %w", path, err)
	}
	return nil
}

// check compares with the recorded results, and returns an error on a difference.
func check(to io.Writer, traces *experiment.Traces, outcomes []*experiment.Outcome) error {
	differences, compared := 0, 0
	for _, outcome := range outcomes {
		found := outcome.Check(traces)
		compared += found.Compared
		if found.Compared > 0 {
			fmt.Fprintf(to, "%s, load %s: %d of %d jobs exact, mean %.4f of the recorded one\n", outcome.Policy, outcome.Load, found.Exact, found.Compared, found.Ratio)
		}
		for _, difference := range found.Differences {
			fmt.Fprintln(to, difference)
		}
		differences += len(found.Differences)
	}
	switch {
	case compared == 0:
		return errors.New("-check has nothing to compare: recorded-jct.json must have a policy of -policy at a load of -loads")
	case differences > 0:
		return fmt.Errorf("%d differences from recorded-jct.json", differences)
	}
	return nil
}
