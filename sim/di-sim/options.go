// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/di-sim/internal/goals"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// options are the flags.
type options struct {
	traces    string
	policies  []experiment.Policy
	rows      []simulator.Row
	loads     []string
	workloads int
	settings  *experiment.Settings
	json      string
	plots     string
	check     bool
	goals     bool
	parts     []string
	quick     bool
	cluster   clusterOptions
	mix       mix
	// tenants is the text of the flag.
	tenants string
}

// mostWorkloads bounds the workloads of a load.
const mostWorkloads = 1000

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{settings: experiment.Artifact()}
	flags := flag.NewFlagSet("di-sim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.traces, "traces", "", "directory of the traces (required)")
	policies := flags.String("policy", "goodput,tiresias,optimus,sia,fit", "policies, with commas; of goodput, fit, tiresias, optimus, pollux, sia")
	rows := flags.String("rows", "blind,progress,history,both", "what jobs report to goodput, with commas")
	loads := flags.String("loads", "1.0", "loads, with commas")
	flags.IntVar(&o.workloads, "workloads", 0, "the first workloads of each load; 0 for all")
	flags.StringVar(&o.json, "json", "", "file to write all results to")
	flags.StringVar(&o.plots, "plots", "", "directory to write plots to, as SVG")
	flags.BoolVar(&o.check, "check", false, "compare with recorded-jct.json, and fail on a difference")
	flags.BoolVar(&o.goals, "goals", false, "measure the figures that docs/simulator.md promises, each beside its goal")
	parts := flags.String("parts", strings.Join(goals.Parts(), ","), "with -goals: which figures, with commas")
	flags.BoolVar(&o.quick, "quick", false, "with -goals: fewer workloads, and no Pollux port")
	flags.StringVar(&o.tenants, "tenants", "", "tenants that share the cluster by weight, such as a=3,b=1: the jobs of a workload are of them in turn")
	addSettings(flags, o.settings)
	o.cluster.addFlags(flags)
	o.mix.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("argument %q: must be a flag", flags.Arg(0))
	}
	o.parts = split(*parts)
	for _, name := range o.parts {
		if !slices.Contains(goals.Parts(), name) {
			return nil, fmt.Errorf("-parts is %q: there is no part %q: must be one of %s", *parts, name, strings.Join(goals.Parts(), ", "))
		}
	}
	return o, o.complete(*policies, *rows, *loads)
}

// addSettings adds the flags that change the rules.
func addSettings(flags *flag.FlagSet, settings *experiment.Settings) {
	rules := &settings.Rules
	flags.Uint64Var(&settings.Seed, "seed", settings.Seed, "seed of all that is random")
	flags.BoolVar(&settings.StopsEarly, "early-stop", false, "each job stops at a random 17 to 100 % of its epochs, which it does not know")
	flags.Float64Var(&settings.Lie, "lie", settings.Lie, "factor by which declared totals are wrong, at random too large or too small")
	flags.Float64Var(&rules.Lose, "lose", rules.Lose, "part of the nodes that is lost at any time, at random")
	flags.IntVar(&rules.Restart, "restart-cost", rules.Restart, "seconds that a changed placement costs")
	flags.Float64Var(&settings.Goodput.Fairness, "fairness", settings.Goodput.Fairness, "fairness of goodput, from 0 to 1")
	flags.IntVar(&rules.Nodes, "nodes", rules.Nodes, "nodes of the cluster")
	flags.IntVar(&rules.GPUs, "gpus", rules.GPUs, "GPUs of a node")
	addRacks(flags, &rules.Racks)
}

// complete reads the lists, and checks all values.
func (o *options) complete(policies, rows, loads string) error {
	if o.traces == "" {
		return errors.New("-traces is empty: must be a directory of traces")
	}
	o.loads = split(loads)
	for _, name := range split(policies) {
		policy, err := experiment.FindPolicy(name)
		if err != nil {
			return fmt.Errorf("-policy is %q: %w", policies, err)
		}
		o.policies = append(o.policies, policy)
	}
	for _, name := range split(rows) {
		row, err := experiment.FindRow(name)
		if err != nil {
			return fmt.Errorf("-rows is %q: %w", rows, err)
		}
		o.rows = append(o.rows, row)
	}
	for name, list := range map[string]int{"-policy": len(o.policies), "-rows": len(o.rows), "-loads": len(o.loads)} {
		if list == 0 {
			return fmt.Errorf("%s is empty: must have a name", name)
		}
	}
	return errors.Join(o.mix.apply(o), o.checkNumbers(), o.checkRacks(), o.cluster.check(o), o.readTenants())
}

func (o *options) checkNumbers() error {
	rules := &o.settings.Rules
	for _, number := range []struct {
		flag               string
		value, least, most float64
	}{
		{"-workloads", float64(o.workloads), 0, mostWorkloads},
		{"-lie", o.settings.Lie, 0.01, 100},
		{"-lose", rules.Lose, 0, 0.9},
		{"-restart-cost", float64(rules.Restart), 0, 86400},
		{"-fairness", o.settings.Goodput.Fairness, 0, 1},
		{"-nodes", float64(rules.Nodes), 1, 10000},
		{"-gpus", float64(rules.GPUs), 1, 64},
	} {
		if !(number.value >= number.least && number.value <= number.most) {
			return fmt.Errorf("%s is %g: must be from %g to %g", number.flag, number.value, number.least, number.most)
		}
	}
	if artifact := simulator.Artifact(); o.check && (o.settings.StopsEarly || o.settings.Lie != 1 || !reflect.DeepEqual(*rules, artifact)) {
		return errors.New("-check compares with results by the rules of the artifact: the flags that change the rules must have their defaults")
	}
	for _, policy := range o.policies {
		if rules.Lose > 0 && policy.Baseline != nil {
			return fmt.Errorf("-lose is %g: must be 0 with -policy %s, which knows no lost nodes", rules.Lose, policy.Name)
		}
	}
	return nil
}

// split returns the parts of a list with commas.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
