// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/plots"
	ratiosim "opendilab.org/di-orchestrator/sim/simulator/ratio"
)

// ratioRow is a row of the table of ratio rules.
type ratioRow struct {
	Scenario string           `json:"scenario"`
	Policy   string           `json:"policy"`
	Figures  ratiosim.Figures `json:"figures"`
}

// runRatio compares the ratio rule with others.
func runRatio(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("di-sim ratio", flag.ContinueOnError)
	flags.SetOutput(stderr)
	options := ratiosim.DefaultOptions()
	jsonFile := flags.String("json", "", "file to write all results to")
	directory := flags.String("plots", "", "directory to write plots to, as SVG")
	only := flags.String("scenario", "", "the disturbances whose name contains this; all by default")
	seeds := flags.Int("seeds", len(ratiosim.Seeds()), "how many of the fixed seeds")
	flags.Float64Var(&options.Noise, "noise", options.Noise, "standard deviation of the producers' speed, as a part of it")
	flags.Float64Var(&options.NoiseSeconds, "noise-seconds", options.NoiseSeconds, "correlation time of the noise, in seconds")
	flags.Float64Var(&options.MinDelay, "min-delay", options.MinDelay, "least time that a collector takes to start, in seconds")
	flags.Float64Var(&options.MaxDelay, "max-delay", options.MaxDelay, "most time that a collector takes to start, in seconds")
	flags.Float64Var(&options.ProducerError, "producer-error", options.ProducerError, "factor by which the measured capacity of collectors is wrong")
	flags.Float64Var(&options.ConsumerError, "consumer-error", options.ConsumerError, "factor by which the measured capacity of the learner is wrong")
	flags.BoolVar(&options.CountsWaiting, "counts-waiting", false, "the learner counts waiting as busy")
	flags.IntVar(&options.EvaluationSeconds, "evaluation-seconds", 0, "how long the learner evaluates every ten minutes, and counts it as busy")
	flags.IntVar(&options.StepSeconds, "step-seconds", options.StepSeconds, "how long a step of the learner takes")
	flags.IntVar(&options.EpisodeSeconds, "episode-seconds", options.EpisodeSeconds, "how long an episode of a collector takes")
	flags.StringVar((*string)(&options.Sender), "sender", string(options.Sender), "how replicas report: timer, loop or sidecar")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := checkRatio(flags, &options, *seeds); err != nil {
		return err
	}
	rows := compareRatio(*only, options, ratiosim.Seeds()[:*seeds])
	if len(rows) == 0 {
		return fmt.Errorf("-scenario is %q: no disturbance has it in its name", *only)
	}
	if err := printRatio(stdout, rows); err != nil {
		return err
	}
	if *jsonFile != "" {
		content, err := json.MarshalIndent(rows, "", "  ")
		if err == nil {
			err = os.WriteFile(*jsonFile, append(content, '\n'), 0o600)
		}
		if err != nil {
			return fmt.Errorf("-json is %q: %w", *jsonFile, err)
		}
	}
	if *directory != "" {
		return drawRatio(*directory, *only, options)
	}
	return nil
}

// checkRatio checks the flags of di-sim ratio.
func checkRatio(flags *flag.FlagSet, options *ratiosim.Options, seeds int) error {
	for _, limit := range []struct {
		flag               string
		value, least, most float64
	}{
		{"step-seconds", float64(options.StepSeconds), 1, 600},
		{"episode-seconds", float64(options.EpisodeSeconds), 1, 600},
		{"producer-error", options.ProducerError, 0.1, 10},
		{"consumer-error", options.ConsumerError, 0.1, 10},
		{"min-delay", options.MinDelay, 0, 3600},
		{"max-delay", options.MaxDelay, options.MinDelay, 3600},
		{"evaluation-seconds", float64(options.EvaluationSeconds), 0, 300},
		{"seeds", float64(seeds), 1, float64(len(ratiosim.Seeds()))},
		{"noise", options.Noise, 0, 0.5},
		{"noise-seconds", options.NoiseSeconds, 1, 3600},
	} {
		if !(limit.value >= limit.least && limit.value <= limit.most) {
			return fmt.Errorf("-%s is %g: must be from %g to %g", limit.flag, limit.value, limit.least, limit.most)
		}
	}
	if !slices.Contains(ratiosim.Senders(), options.Sender) {
		return fmt.Errorf("-sender is %q: must be one of %v", options.Sender, ratiosim.Senders())
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: must be a flag", flags.Arg(0))
	}
	return nil
}

func compareRatio(only string, options ratiosim.Options, seeds []uint64) []ratioRow {
	var rows []ratioRow
	for _, scenario := range ratiosim.Scenarios() {
		if !strings.Contains(scenario.Name, only) {
			continue
		}
		for _, policy := range append(ratiosim.Policies(), ratiosim.TrueRatio) {
			rows = append(rows, ratioRow{scenario.Name, policy, ratiosim.Mean(&scenario, policy, options, seeds)})
		}
	}
	return rows
}

func printRatio(out io.Writer, rows []ratioRow) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "disturbance\trule\tstarved %\tcost/ideal\tstaleness\tresizes/h\tovershoot %\tsettled s")
	for _, row := range rows {
		f := row.Figures
		fmt.Fprintf(table, "%s\t%s\t%.2f\t%.2f\t%.1f\t%.1f\t%.0f\t%.0f\n",
			row.Scenario, row.Policy, 100*f.Starved, f.Cost, f.Staleness, f.Resizes, 100*f.Overshoot, f.Settling)
	}
	return table.Flush()
}

// drawRatio draws the sizes under each rule for each disturbance, of the first seed.
func drawRatio(directory, only string, options ratiosim.Options) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("-plots is %q: must be a directory that can be written: %w", directory, err)
	}
	for _, scenario := range ratiosim.Scenarios() {
		if !strings.Contains(scenario.Name, only) {
			continue
		}
		var sizes []plots.Sizes
		for _, policy := range ratiosim.Policies() {
			_, points := ratiosim.Run(&scenario, policy, options, ratiosim.Seeds()[0])
			sizes = append(sizes, plots.Sizes{Name: policy, Points: points})
		}
		file := "ratio-" + strings.ReplaceAll(scenario.Name, " ", "-") + ".svg"
		if err := plots.Ratio(filepath.Join(directory, file), "Collectors: "+scenario.Description, sizes); err != nil {
			return err
		}
	}
	return nil
}
