// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller measures how fast the operator creates the pods of jobs, by
// how many requests and in which memory.
package controller

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
)

// bench is what the sections share.
type bench struct {
	*harness.Bench

	full      bool
	unlimited bool
	scale     int
	cluster   string
}

// New returns the scenario.
func New() *harness.Scenario {
	b := &bench{Bench: &harness.Bench{}}
	return &harness.Scenario{
		Name: "controller", Bench: b.Bench, Flags: b.flags, Prepare: b.prepare,
		Sections: []harness.Section{
			{Name: "shape", Run: b.runShapes}, {Name: "writes", Run: b.runWrites},
			{Name: "memory", Run: b.runMemory}, {Name: "size", Run: b.runSizes},
		},
		Roles: map[string]func(context.Context, io.Reader, io.Writer) error{
			roleWatcher: func(ctx context.Context, in io.Reader, out io.Writer) error {
				return watchPods(ctx, b.cluster, in, out)
			},
		},
	}
}

func (b *bench) flags(flags *flag.FlagSet) {
	flags.BoolVar(&b.full, "full", false, "shape: 5000 pods in each row, and -unlimited; some 5 GB of etcd")
	flags.BoolVar(&b.unlimited, "unlimited", false, "shape: each row also without a rate limit of the clients")
	flags.IntVar(&b.scale, "scale", 10, "shape: divisor of the load without -full")
	flags.StringVar(&b.cluster, "cluster", "", "role watcher: the kubeconfig of the API server")
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
	for _, flag := range []string{"kube-api-qps", "kube-api-burst", "workers"} {
		if found := regexp.MustCompile(`--` + flag + ` .*\(default (\S+)\)`).FindSubmatch(help); found != nil {
			defaults = append(defaults, "--"+flag+"="+string(found[1]))
		}
	}
	fmt.Fprintf(b.Out, "The operator has its defaults: %s; %s.\n", strings.Join(defaults, " "), harness.OperatorMemoryLimit)
	return nil
}
