// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command upgrade measures what users of an installation notice while it is
// upgraded: calls that fail or wait while operators are restarted, the webhooks'
// authority is rotated and stored jobs are migrated. Each figure stands beside a
// reference that is measured in the same run. It is run by make bench-upgrade.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/hack/bench/internal/report"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// options are the flags.
type options struct {
	report.Options
	binary        string
	operatorFlags string
	rate          int
	jobs          int
	rounds        int
	rest          time.Duration
	objects       int
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Only, "only", "", "comma-separated names of the sections to run (takeover, restart, failover, rotation, migration); all when empty")
	flags.BoolVar(&o.Check, "check", false, "fail when a limit is missed")
	flags.StringVar(&o.binary, "binary", "", "the di-orchestrator to measure; built from this checkout when empty")
	flags.StringVar(&o.operatorFlags, "operator-flags", "", "further flags of the operators, separated by blanks")
	flags.IntVar(&o.rate, "rate", 50, "GETs of jobs a second, at the version that is not stored")
	flags.IntVar(&o.jobs, "jobs", 200, "takeover, restart, rotation: jobs that there are")
	flags.IntVar(&o.rounds, "rounds", 3, "restart, failover, rotation: how often")
	flags.DurationVar(&o.rest, "rest", 20*time.Second, "how long is measured at rest")
	flags.IntVar(&o.objects, "objects", 10_000, "migration: jobs that are stored at v1alpha1")
}

// bench is what all sections are run with.
type bench struct {
	options
	out io.Writer
	// progress takes what is said of what is under way.
	progress io.Writer
	// folder holds what processes are started from and what they log.
	folder string
}

// sections are the tables in the order in which they are printed.
func (b *bench) sections() []report.Section {
	section := func(name string, run func(context.Context, *bench) (figures.Limits, error)) report.Section {
		return report.Section{Name: name, Run: func(ctx context.Context) (figures.Limits, error) { return run(ctx, b) }}
	}
	return []report.Section{
		section("takeover", runTakeover), section("restart", runRestart), section("failover", runFailover),
		section("rotation", runRotation), section("migration", runMigration),
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var o options
	o.addFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := run(ctx, &bench{options: o, out: os.Stdout, progress: os.Stderr})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "upgrade:", err)
		os.Exit(1)
	}
}

// run runs the sections.
func run(ctx context.Context, b *bench) error {
	return program.InFolder("bench-upgrade-", func(folder string) error {
		b.folder = folder
		return b.runAll(ctx)
	})
}

func (b *bench) runAll(ctx context.Context) error {
	if b.binary == "" {
		b.say("building di-orchestrator")
		var err error
		if b.binary, err = program.Build(ctx, b.folder); err != nil {
			return err
		}
	}
	return report.Run(ctx, b.out, b.sections(), b.Options)
}

// say tells what is under way.
func (b *bench) say(format string, arguments ...any) {
	fmt.Fprintf(b.progress, "# %s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, arguments...)...)
}

// errs joins the error of a function's end to that of the function.
func errs(err *error, end func() error) {
	*err = errors.Join(*err, end())
}
