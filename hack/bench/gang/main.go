// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gang measures what gangs of Kubernetes' own cost, and proves that none
// starts in part: a real API server, the real scheduler, the operator, and more
// gangs than there is room for. The same jobs without gangs stand beside them. It
// is run by make bench-gangs.
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

	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// options are the flags.
type options struct {
	gangs, size, room int
	work, settle      time.Duration

	binary, scheduler, controllerManager string
	operatorFlags                        string
	// progress takes what is said of what is under way.
	progress io.Writer
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.IntVar(&o.gangs, "gangs", 100, "how many jobs there are")
	flags.IntVar(&o.size, "size", 20, "how many pods each has, all of which are its gang")
	flags.IntVar(&o.room, "room", 40, "for how many of them there is room at a time")
	flags.DurationVar(&o.work, "work", 10*time.Second, "how long each pod runs")
	flags.DurationVar(&o.settle, "settle", 10*time.Second,
		"how long pods of a gang may run while others are still being bound; the scheduler binds one after the other")
	flags.StringVar(&o.binary, "binary", "", "the di-orchestrator to measure; built from this checkout when empty")
	flags.StringVar(&o.operatorFlags, "operator-flags", "", "further flags of the operator, separated by spaces")
	flags.StringVar(&o.scheduler, "scheduler", "", "the kube-scheduler; the one of hack/cluster when empty")
	flags.StringVar(&o.controllerManager, "controller-manager", "", "the kube-controller-manager; the one of hack/cluster when empty")
}

func (o *options) check() error {
	if o.gangs < 1 || o.size < 1 || o.room < 1 || o.work <= 0 || o.settle <= 0 {
		return errors.New("-gangs, -size, -room, -work and -settle have to be more than 0")
	}
	return nil
}

// say tells what is under way.
func (o *options) say(format string, arguments ...any) {
	fmt.Fprintf(o.progress, "# "+format+"\n", arguments...)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o := options{progress: os.Stderr}
	o.addFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := run(ctx, &o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gang:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	return program.InFolder("bench-gang-", func(folder string) error {
		if err := o.build(ctx, folder); err != nil {
			return err
		}
		return measure(ctx, o, folder, out)
	})
}

// build builds the programs that are not given.
func (o *options) build(ctx context.Context, folder string) (err error) {
	if o.binary == "" {
		if o.binary, err = program.Build(ctx, folder); err != nil {
			return err
		}
	}
	for name, path := range map[string]*string{"kube-scheduler": &o.scheduler, "kube-controller-manager": &o.controllerManager} {
		if *path == "" {
			if *path, err = program.BuildCluster(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure plays the jobs with gangs and without, and prints how they did.
func measure(ctx context.Context, o *options, folder string, out io.Writer) (err error) {
	busy, err := program.BusyProcessors(ctx)
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, o, folder)
	if w != nil {
		defer func() { err = errors.Join(err, w.stop()) }()
	}
	if err != nil {
		return err
	}
	if _, err := w.play(ctx, firstNamespace, 1, 1, true); err != nil {
		return err
	}
	gangs, err := w.play(ctx, gangNamespace, o.gangs, o.size, true)
	if err != nil {
		return err
	}
	plain, err := w.play(ctx, plainNamespace, o.gangs, o.size, false)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d jobs of %d pods, room for %d of them at a time, each pod runs %s. Before, others kept %s busy.\n",
		o.gangs, o.size, o.room, o.work, busy)
	if err := printAll(out, o, gangs, plain); err != nil {
		return err
	}
	return judge(out, requirements(o, gangs, plain))
}
