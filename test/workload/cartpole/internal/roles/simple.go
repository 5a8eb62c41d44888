// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"flag"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// Default ports of the coordinator-led roles.
const (
	collectorPort   = 22270
	learnerPort     = 22271
	aggregatorPort  = 22272
	coordinatorPort = 22273
)

// identify returns the identity of a process that is always ready.
func identify(role, name string) func() peer.Identity {
	return func() peer.Identity {
		return peer.Identity{Role: role, Name: name, Ready: true}
	}
}

// runSerial trains in this process alone.
func runSerial(ctx context.Context, system System, args []string) error {
	flags := flag.NewFlagSet("serial", flag.ContinueOnError)
	training := newTraining(system, flags)
	patience := newPatience(flags)
	checkpoint := newCheckpoint(flags)
	if err := system.Parse(flags, args); err != nil {
		return err
	}
	port, err := system.integer("COORDINATOR_PORT", coordinatorPort)
	if err != nil {
		return err
	}
	if err := training.resume(checkpoint); err != nil {
		return err
	}
	ctx, crew := newCrew(ctx)
	mux := peer.NewMux(identify("serial", system.name()))
	training.serve(mux)
	if err := crew.serve(system, port, mux); err != nil {
		return crew.stop(err)
	}
	pool := train.NewPool(patience.of(nil), system.Now)
	pool.Add("local", train.Collecting, train.LocalCollector{})
	group := train.NewGroup(patience.of(nil), system.Now)
	own := &train.Local{}
	group.Add("local", own)
	err = training.run(ctx, pool, group)
	checkpoint.conclude(ctx, system, own, err)
	return crew.stop(err)
}

// runCollector plays the work units that a coordinator sends.
func runCollector(ctx context.Context, system System, args []string) error {
	if err := system.Parse(flag.NewFlagSet("collector", flag.ContinueOnError), args); err != nil {
		return err
	}
	port, err := system.integer("COLLECTOR_PORT", collectorPort)
	if err != nil {
		return err
	}
	_, crew := newCrew(ctx)
	mux := peer.NewMux(identify("collector", system.name()))
	mux.ServeCollector(train.LocalCollector{})
	if err := crew.serve(system, port, mux); err != nil {
		return crew.stop(err)
	}
	return crew.join()
}

// runLearner is a learner of one process, unless the environment makes it a part
// of a learner of several: a job has one template for both.
func runLearner(ctx context.Context, system System, args []string) error {
	if system.Getenv("WORLD_SIZE") != "" {
		return runDDPLearner(ctx, system, args)
	}
	if err := system.Parse(flag.NewFlagSet("learner", flag.ContinueOnError), args); err != nil {
		return err
	}
	port, err := system.integer("LEARNER_PORT", learnerPort)
	if err != nil {
		return err
	}
	_, crew := newCrew(ctx)
	mux := peer.NewMux(identify("learner", system.name()))
	mux.ServeLearner(&train.Local{})
	if err := crew.serve(system, port, mux); err != nil {
		return crew.stop(err)
	}
	return crew.join()
}
