// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller measures the operator's memory for running jobs, the size of jobs in etcd, and what
// allocation rounds and profiling reports of many jobs cost.
package controller

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/start"
)

// bench is shared by the sections.
type bench struct {
	*harness.Bench

	allocator allocatorFlags
	start     start.Options
}

// New returns the scenario.
func New() *harness.Scenario {
	b := &bench{Bench: &harness.Bench{}}
	return &harness.Scenario{
		Name: "controller", Bench: b.Bench, Flags: b.addFlags, Prepare: b.prepare,
		Sections: append([]harness.Section{
			{Name: "memory", Run: b.runMemory}, {Name: "size", Run: b.runSizes}, {Name: "allocator", Run: b.runAllocator},
		}, b.start.Sections(b.Bench)...),
	}
}

// addFlags registers the flags of all sections.
func (b *bench) addFlags(flags *flag.FlagSet) {
	b.allocator.add(flags)
	b.start.Add(flags)
}

// prepare builds the operator and prints its defaults.
func (b *bench) prepare(ctx context.Context) error {
	if err := b.Build(ctx); err != nil {
		return err
	}
	help, err := exec.CommandContext(ctx, b.Binary, "operator", "--help").Output()
	if err != nil {
		return fmt.Errorf("reading the operator's flags: %w", err)
	}
	var defaults []string
	for _, flag := range []string{"kube-api-burst", "workers"} {
		if found := regexp.MustCompile(`--` + flag + ` .*\(default (\S+)\)`).FindSubmatch(help); found != nil {
			defaults = append(defaults, "--"+flag+"="+string(found[1]))
		}
	}
	fmt.Fprintf(b.Out, "The operator has its defaults: %s; %s.\n", strings.Join(defaults, " "), harness.OperatorMemoryLimit)
	return nil
}
