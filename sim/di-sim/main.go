// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command di-sim replays workloads of training jobs under allocation policies, and
// compares the policies with recorded results. docs/simulator.md describes it.
// "di-sim ratio" compares the rule that sizes producers of samples; docs/ratio.md describes it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "di-sim:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "ratio" {
		return runRatio(args[1:], stdout, stderr)
	}
	options, err := parse(args, stderr)
	if err != nil {
		return err
	}
	traces, err := experiment.Open(options.traces)
	if err != nil {
		return fmt.Errorf("-traces is %q: must be a directory with applications/, grid-aws/ and workloads-LOAD/: %w", options.traces, err)
	}
	if err := options.mix.load(traces, &options.settings.Rules); err != nil {
		return err
	}
	if options.goals {
		return measureGoals(traces, options, stdout, stderr)
	}
	outcomes, err := simulate(traces, options, stderr)
	if err != nil {
		return err
	}
	if options.cluster.isOn {
		if outcomes, err = addCluster(traces, options, outcomes, stderr); err != nil {
			return err
		}
	}
	if err := errors.Join(printTable(stdout, traces, outcomes), printShares(stdout, outcomes, options.settings)); err != nil {
		return err
	}
	if options.json != "" {
		if err := writeJSON(options.json, outcomes); err != nil {
			return err
		}
	}
	if options.plots != "" {
		if err := draw(options.plots, outcomes); err != nil {
			return err
		}
	}
	if options.check {
		return check(stdout, traces, outcomes)
	}
	return nil
}
