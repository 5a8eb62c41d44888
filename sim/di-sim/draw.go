// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/di-sim/internal/plots"
)

// draw writes a plot of completion times for each load, and one of GPUs over time for the first
// workload of each outcome.
func draw(directory string, outcomes []*experiment.Outcome) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("-plots is %q: must be a directory that can be written: %w", directory, err)
	}
	var loads []string
	lines := map[string][]plots.Line{}
	for _, outcome := range outcomes {
		if lines[outcome.Load] == nil {
			loads = append(loads, outcome.Load)
		}
		lines[outcome.Load] = append(lines[outcome.Load], plots.Line{Name: nameOf(outcome), Results: outcome.Results})
		file := fmt.Sprintf("gpus-%s-%s.svg", outcome.Load, strings.ReplaceAll(nameOf(outcome), " ", "-"))
		title := fmt.Sprintf("GPUs by job: %s, load %s, %s", nameOf(outcome), outcome.Load, outcome.Workloads[0])
		if err := plots.GPUs(filepath.Join(directory, file), title, outcome.Results[0]); err != nil {
			return err
		}
	}
	for _, load := range loads {
		path := filepath.Join(directory, fmt.Sprintf("jct-%s.svg", load))
		if err := plots.CompletionTimes(path, "Completion times of jobs, load "+load, lines[load]); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(outcome *experiment.Outcome) string {
	return strings.TrimSpace(policyOf(outcome) + " " + outcome.Row)
}
