// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command server measures di-server and what the operator makes of its writes,
// each figure beside a reference that is measured in the same run. It is run by
// make bench-server.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/hack/bench/internal/report"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// options are the flags.
type options struct {
	only     string
	check    bool
	binary   string
	jobs     int
	duration time.Duration
	writes   float64
	rounds   int
	runs     int
	replicas int
	pause    time.Duration
	// role and size are for the further processes that this program is.
	role string
	size int
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.only, "only", "", "comma-separated names of the sections to run (polling, rate, grow); all when empty")
	flags.BoolVar(&o.check, "check", false, "fail when a limit is missed")
	flags.StringVar(&o.binary, "binary", "", "the di-orchestrator to measure; built from this checkout when empty")
	flags.IntVar(&o.jobs, "jobs", 1000, "polling: jobs, each with one polling coordinator")
	flags.DurationVar(&o.duration, "duration", 30*time.Second, "polling: how long each row is")
	flags.Float64Var(&o.writes, "writes", 50, "polling: writes a second")
	flags.IntVar(&o.rounds, "rounds", 5, "rate: how often each server has its turn")
	flags.IntVar(&o.runs, "runs", 50, "grow: how many jobs grow")
	flags.IntVar(&o.replicas, "replicas", 100, "grow: how many collectors each job asks for")
	flags.DurationVar(&o.pause, "pause", 2*time.Second, "grow: how long the clients' rate limits recover before each run")
	flags.StringVar(&o.role, "role", "", "be another process of the benchmark: load or bare")
	flags.IntVar(&o.size, "size", 0, "bare: bytes of the answer")
}

// sections are the tables in the order in which they are printed.
func (b *bench) sections() []report.Section {
	section := func(name string, run func(context.Context, *bench) (figures.Limits, error)) report.Section {
		return report.Section{Name: name, Run: func(ctx context.Context) (figures.Limits, error) { return run(ctx, b) }}
	}
	return []report.Section{section("polling", runPolling), section("rate", runRate), section("grow", runGrow)}
}

// bench is what all sections are run with.
type bench struct {
	options
	out io.Writer
	// folder holds what processes are started from and what they log.
	folder string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var o options
	o.addFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	var err error
	switch o.role {
	case "load":
		err = generateLoad(ctx, os.Stdin, os.Stdout)
	case "bare":
		err = serveBare(ctx, o.size, os.Stdin, os.Stdout)
	default:
		err = run(ctx, &bench{options: o, out: os.Stdout})
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// run runs the sections.
func run(ctx context.Context, b *bench) error {
	return program.InFolder("bench-server-", func(folder string) error {
		b.folder = folder
		return b.runAll(ctx)
	})
}

func (b *bench) runAll(ctx context.Context) error {
	if b.binary == "" {
		var err error
		if b.binary, err = program.Build(ctx, b.folder); err != nil {
			return err
		}
	}
	return report.Run(ctx, b.out, b.sections(), report.Options{Only: b.only, Check: b.check})
}
