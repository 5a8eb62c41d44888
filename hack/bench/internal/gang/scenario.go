// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gang measures the cost of Kubernetes' own gangs, and checks that none starts partially.
// The real scheduler places more gangs than fit, and then the same jobs without gangs.
package gang

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// options are the values of the flags.
type options struct {
	gangs, size, room int
	work, settle      time.Duration

	scheduler, controllerManager string
	operatorFlags                string
}

// bench is the scenario with its flags.
type bench struct {
	*harness.Bench
	options
}

// New returns the scenario.
func New() *harness.Scenario {
	b := &bench{Bench: &harness.Bench{}}
	return &harness.Scenario{
		Name: "gang", Bench: b.Bench, Flags: b.flags, Prepare: b.prepare,
		Sections: []harness.Section{{Name: "gangs", Run: b.measure}},
	}
}

func (b *bench) flags(flags *flag.FlagSet) {
	flags.IntVar(&b.gangs, "gangs", 100, "number of jobs")
	flags.IntVar(&b.size, "size", 20, "pods of each job, all in its gang")
	flags.IntVar(&b.room, "room", 40, "number of gangs that fit on the nodes")
	flags.DurationVar(&b.work, "work", 10*time.Second, "how long each pod runs")
	flags.DurationVar(&b.settle, "settle", 10*time.Second,
		"how long pods of a gang may run while the scheduler, which binds one after the other, still binds the rest")
	flags.StringVar(&b.operatorFlags, "operator-flags", "", "further flags of the operator, separated by spaces")
	flags.StringVar(&b.scheduler, "scheduler", "", "the kube-scheduler; the one of hack/cluster when empty")
	flags.StringVar(&b.controllerManager, "controller-manager", "", "the kube-controller-manager; the one of hack/cluster when empty")
}

// prepare validates the flags and builds the programs that they do not name.
func (b *bench) prepare(ctx context.Context) error {
	if b.gangs < 1 || b.size < 1 || b.room < 1 || b.work <= 0 || b.settle <= 0 {
		return errors.New("-gangs, -size, -room, -work and -settle have to be more than 0")
	}
	for name, path := range map[string]*string{"kube-scheduler": &b.scheduler, "kube-controller-manager": &b.controllerManager} {
		if *path == "" {
			var err error
			if *path, err = program.BuildCluster(ctx, name); err != nil {
				return err
			}
		}
	}
	return b.Build(ctx)
}

// measure runs the jobs with and without gangs and prints the tables.
func (b *bench) measure(ctx context.Context) (_ figures.Limits, err error) {
	w, err := b.newWorld(ctx)
	if w != nil {
		defer harness.Close(&err, w.stop)
	}
	if err != nil {
		return nil, err
	}
	if _, err := w.play(ctx, firstNamespace, 1, 1, true); err != nil {
		return nil, err
	}
	gangs, err := w.play(ctx, gangNamespace, b.gangs, b.size, true)
	if err != nil {
		return nil, err
	}
	plain, err := w.play(ctx, plainNamespace, b.gangs, b.size, false)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(b.Out, "%d jobs of %d pods, room for %d of them at a time, each pod runs %s.\n", b.gangs, b.size, b.room, b.work)
	if err := printAll(b.Out, &b.options, gangs, plain); err != nil {
		return nil, err
	}
	return nil, judge(b.Out, requirements(&b.options, gangs, plain))
}
