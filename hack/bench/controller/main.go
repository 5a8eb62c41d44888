// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controller measures what the operator makes of worker-led jobs: how
// fast, by how many requests, in which memory, and what it leaves when it is
// killed. Each figure stands beside a reference that is measured in the same
// run. It is run by make bench-controller.
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
	full bool
	// unlimited adds rows to section shape.
	unlimited bool
	binary    string
	profiles  string
	seed      uint64
	scale     int
	rounds    int
	kills     int
	// role and cluster are for the further process that this program is.
	role    string
	cluster string
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Only, "only", "", "comma-separated names of the sections to run (shape, writes, headofline, memory, size, storm, kills); all when empty")
	flags.BoolVar(&o.Check, "check", false, "fail when a limit is missed")
	flags.BoolVar(&o.full, "full", false, "shape: 5000 pods in each row, and -unlimited; some 5 GB of etcd")
	flags.BoolVar(&o.unlimited, "unlimited", false, "shape: each row also without a limit on the clients' rate")
	flags.StringVar(&o.binary, "binary", "", "the di-orchestrator to measure; built from this checkout when empty")
	flags.StringVar(&o.profiles, "profiles", "", "folder to write the operator's profiles of sections shape, memory and size into; none when empty")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "kills, storm: of what is random")
	flags.IntVar(&o.scale, "scale", 10, "shape: by what the load is divided without -full")
	flags.IntVar(&o.rounds, "rounds", 3, "headofline: how often each is measured")
	flags.IntVar(&o.kills, "kills", 50, "kills: how often the operator is killed")
	flags.StringVar(&o.role, "role", "", "be another process of the benchmark: watcher")
	flags.StringVar(&o.cluster, "cluster", "", "watcher: the kubeconfig of the API server")
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
		section("shape", runShapes), section("writes", runWrites), section("headofline", runHeadOfLine),
		section("memory", runMemory), section("size", runSizes), section("storm", runStorm), section("kills", runKills),
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var o options
	o.addFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	var err error
	switch o.role {
	case "":
		err = run(ctx, &bench{options: o, out: os.Stdout, progress: os.Stderr})
	case "watcher":
		err = watchPods(ctx, o.cluster, os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("-role %s: there is none of that name", o.role)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

// run runs the sections.
func run(ctx context.Context, b *bench) error {
	return program.InFolder("bench-controller-", func(folder string) error {
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
	defaults, err := readDefaults(ctx, b.binary)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "The operator has its defaults: %s; %s. Seed: %d.\n", defaults, installedMemoryLimit, b.seed)
	return report.Run(ctx, b.out, b.sections(), b.Options)
}

// say tells what is under way.
func (b *bench) say(format string, arguments ...any) {
	fmt.Fprintf(b.progress, "# "+format+"\n", arguments...)
}

// errs joins the error of a function's end to that of the function.
func errs(err *error, end func() error) {
	*err = errors.Join(*err, end())
}
