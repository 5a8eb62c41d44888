// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package local runs a whole coordinator-led job in one process: all of its
// roles, and a stand-in for the cluster and di-server.
package local

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/roles"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/standin"
)

// Config says what job to run.
type Config struct {
	// GPUsPerNode is the largest number of GPUs of one pod.
	GPUsPerNode int
	// Coordinator are the arguments of the coordinator, Aggregator and Learner
	// those of the other roles.
	Coordinator, Aggregator, Learner []string
	// Restart is the pause before a process that ended is started again.
	Restart time.Duration
}

// Job is a running job.
type Job struct {
	Server *standin.Server
	Keeper *standin.Keeper
	system roles.System
	config Config
	ctx    context.Context //nolint:containedctx // the life of the job
	cancel context.CancelFunc
	served chan error
}

// Start starts everything but the coordinator.
func Start(ctx context.Context, system roles.System, config Config) (*Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	j := &Job{system: system, config: config, ctx: ctx, cancel: cancel, served: make(chan error, 1)}
	network := standin.NewNetwork()
	j.Keeper = standin.NewKeeper(ctx, config.Restart, j.run)
	j.Server = standin.NewServer("default", "cartpole", config.GPUsPerNode, network, j.Keeper)
	listener, err := network.Host(standin.ServerName).Listen(ctx, standin.ServerPort)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() { j.served <- peer.Serve(ctx, listener, j.Server) }()
	return j, nil
}

// Coordinate runs the coordinator to its end.
func (j *Job) Coordinate() error {
	return j.run(j.ctx, j.Server.CoordinatorPod())
}

// Stop stops everything.
func (j *Job) Stop() error {
	j.cancel()
	j.Keeper.Wait()
	return <-j.served
}

func (j *Job) run(ctx context.Context, pod standin.Pod) error {
	system := j.system
	system.Getenv = func(key string) string { return pod.Env[key] }
	system.Hostname, system.Listen, system.Dial = pod.Name, pod.Host.Listen, pod.Host.Dial
	system.Log = system.Log.With("pod", pod.Name)
	args := []string{pod.Role}
	switch pod.Role {
	case "coordinator":
		args = append(args, j.config.Coordinator...)
	case "aggregator":
		args = append(args, j.config.Aggregator...)
	case "learner":
		if pod.Env["WORLD_SIZE"] != "" {
			args = append(args, j.config.Learner...)
		}
	}
	err := roles.Run(ctx, system, args)
	if err != nil && ctx.Err() == nil {
		system.Log.Error("process ended", "error", err)
	}
	return err
}

// Run is the command "local".
func Run(ctx context.Context, system roles.System, args []string) error {
	flags := flag.NewFlagSet("local", flag.ContinueOnError)
	collectors := flags.Int("collectors", 2, "collectors to run")
	gpus := flags.Int("gpus", 1, "GPUs of the learner; with more than one it is an aggregator with DDP learners")
	gpusPerNode := flags.Int("gpus-per-node", 8, "GPUs of a node; a learner of more spans pods")
	seed := flags.Uint64("seed", 1, "seed of all randomness")
	minRound := flags.Duration("min-round", 0, "least time that a round takes")
	strict := flags.Bool("strict", false, "copy the faults of the client that is deployed in the field")
	verbose := flags.Bool("verbose", false, "show what all processes log")
	if err := system.Parse(flags, args); err != nil {
		return err
	}
	if !*verbose {
		system.Log = slog.New(slog.DiscardHandler)
	}
	job, err := Start(ctx, system, Config{
		GPUsPerNode: *gpusPerNode,
		Coordinator: []string{
			"--collectors", strconv.Itoa(*collectors), "--learner-gpus", strconv.Itoa(*gpus),
			"--seed", strconv.FormatUint(*seed, 10), "--min-round", minRound.String(),
			"--strict=" + strconv.FormatBool(*strict), "--interval=100ms", "--connect-retry=100ms", "--retry=100ms",
		},
		Aggregator: []string{"--strict=" + strconv.FormatBool(*strict), "--interval=300ms", "--connect-retry=100ms"},
		Learner:    []string{"--join-interval=200ms"},
		Restart:    time.Second,
	})
	if err != nil {
		return fmt.Errorf("start the job: %w", err)
	}
	return errors.Join(job.Coordinate(), job.Stop())
}
