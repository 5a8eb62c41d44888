// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// These are the ports of the coordinator-led roles if their environment has none.
const (
	collectorPort   = 22270
	learnerPort     = 22271
	aggregatorPort  = 22272
	coordinatorPort = 22273
)

const (
	// coordinatorInterval is the interval at which a coordinator polls di-server's list.
	coordinatorInterval = time.Second
	// serverTimeout is the timeout of a call to di-server. serverRetry is the backoff after a
	// connection error.
	serverTimeout = time.Minute
	serverRetry   = time.Second
	// connectTimeout is the timeout for the first answer of a replica.
	connectTimeout = 2 * time.Minute
)

// follower is a process that follows a list of di-server.
type follower struct {
	*process
	// strict reproduces the faults of the deployed client.
	strict bool
	api    *diserver.Client
}

func newFollower(p *process, flags *flag.FlagSet) *follower {
	f := &follower{process: p}
	flags.BoolVar(&f.strict, "strict", false, "copy the faults of the client that is deployed in the field")
	return f
}

// connect creates the client of di-server from the environment.
func (f *follower) connect() error {
	config := diserver.Config{
		URL:        f.getenv("KUBERNETES_SERVER_URL"),
		APIVersion: cmp.Or(f.getenv("KUBERNETES_SERVER_API_VERSION"), "/v1alpha1"),
		Namespace:  f.getenv("KUBERNETES_POD_NAMESPACE"),
		Name:       f.getenv("KUBERNETES_POD_NAME"),
		RetryWait:  serverRetry,
		HTTP:       &http.Client{Transport: f.client.Transport, Timeout: serverTimeout},
	}
	if config.URL == "" || config.Namespace == "" || config.Name == "" {
		return errors.New("environment: want KUBERNETES_SERVER_URL, KUBERNETES_POD_NAMESPACE and KUBERNETES_POD_NAME")
	}
	if !f.strict {
		config.TokenFile = diserver.TokenFile
	}
	var err error
	f.api, err = diserver.New(config)
	return err
}

// follow polls repeatedly. An error ends a strict client, unless the error means that di-server can
// serve the request later.
func (f *follower) follow(ctx context.Context, interval time.Duration, look func(context.Context) error) error {
	for {
		if err := look(ctx); err != nil {
			if ctx.Err() != nil || f.strict && !diserver.IsLater(err) {
				return err
			}
			f.log.Warn("cannot follow di-server's list", "error", err)
		}
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
}

// coordinator requests collectors and learners from di-server and trains with them.
type coordinator struct {
	*follower
	wanted     demand
	training   *training
	collectors *roster
	learners   *roster
	asked      bool
	deadline   time.Time
}

// demand contains the replicas that a coordinator requests.
type demand struct{ collectors, learners diserver.Resources }

func (d *demand) flags(flags *flag.FlagSet, collectors, learners int) {
	flags.IntVar(&d.collectors.Replicas, "collectors", collectors, "number of collectors")
	flags.IntVar(&d.learners.Replicas, "learners", learners, "number of learners")
	flags.StringVar(&d.learners.GPUs, "learner-gpus", "", "GPUs of each learner; empty keeps the template's")
}

func runCoordinator(ctx context.Context, p *process, args []string) error {
	flags := flag.NewFlagSet("coordinator", flag.ContinueOnError)
	c := &coordinator{training: newTraining(p, flags), follower: newFollower(p, flags)}
	c.wanted.flags(flags, 2, 1)
	if err := p.parse(flags, args); err != nil {
		return err
	}
	port, err := p.number("COORDINATOR_PORT", coordinatorPort)
	if err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	c.collectors = newRoster(c.follower, connectTimeout, func(r remote, _ identity) {
		c.training.players.add(r.address, taskCollector, r)
	}, c.training.players.remove)
	c.learners = newRoster(c.follower, connectTimeout, func(r remote, _ identity) {
		c.training.learners.add(r.address, taskLearner, r)
	}, c.training.learners.remove)
	c.deadline = time.Now().Add(connectTimeout)
	mux := newMux(identity{Name: p.hostname})
	c.training.serve(mux)
	return p.run(ctx, map[int]http.Handler{port: mux}, c.train, func(ctx context.Context) error {
		return c.follow(ctx, coordinatorInterval, c.look)
	})
}

// train continues from the state of the job's learners if this coordinator replaces another one.
func (c *coordinator) train(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if held := heldState(waiting, &c.training.learners, max(c.wanted.learners.Replicas, 1)); held.Round > 0 {
		c.log.Info("continuing from the state of the learners", "round", held.Round, "hash", held.hash())
		c.training.state = held
	}
	return c.training.run(ctx)
}

// look requests replicas once, reports those that failed, and reads the list.
func (c *coordinator) look(ctx context.Context) error {
	if !c.asked {
		if _, err := c.api.Create(ctx, c.wanted.collectors, c.wanted.learners); err != nil {
			return fmt.Errorf("ask di-server for replicas: %w", err)
		}
		c.asked = true
		c.log.Info("asked for replicas", "collectors", c.wanted.collectors.Replicas, "learners", c.wanted.learners.Replicas)
	}
	if err := c.report(ctx); err != nil {
		return err
	}
	list, err := c.api.OfCoordinator(ctx)
	if err != nil {
		return fmt.Errorf("read di-server's list: %w", err)
	}
	if err := c.collectors.sync(ctx, list.Collectors); err != nil {
		return err
	}
	if err := c.learners.sync(ctx, list.Learners); err != nil {
		return err
	}
	if c.strict && time.Now().After(c.deadline) && !c.collectors.ever && !c.learners.ever {
		return fmt.Errorf("strict mode: no collector and no learner could be connected within %s", connectTimeout)
	}
	return nil
}

func (c *coordinator) report(ctx context.Context) error {
	collectors, learners := c.collectors.in(failed), c.learners.in(failed)
	if len(collectors)+len(learners) == 0 {
		return nil
	}
	reported := diserver.Failed{Collectors: podNames(collectors), Learners: podNames(learners)}
	if err := c.api.ReportFailed(ctx, reported); err != nil {
		return fmt.Errorf("report failed replicas: %w", err)
	}
	c.log.Warn("reported as failed", "collectors", reported.Collectors, "learners", reported.Learners)
	c.collectors.forget(collectors)
	c.learners.forget(learners)
	return nil
}

// runDist calls di-server from a coordinator's pod and prints the answer. Users do so by hand with
// the deployed client's command of that name.
func runDist(ctx context.Context, p *process, args []string) error {
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	f := newFollower(p, flags)
	add := flags.Bool("add", false, "ask for more replicas; without any of these replicas are listed")
	remove := flags.Bool("delete", false, "give replicas up")
	restart := flags.String("restart", "", "names of replicas to replace, separated by commas")
	var wanted demand
	wanted.flags(flags, 0, 0)
	if err := p.parse(flags, args); err != nil {
		return err
	}
	err := f.connect()
	if err != nil {
		return err
	}
	var answer diserver.Replicas
	switch {
	case *add:
		answer, err = f.api.Create(ctx, wanted.collectors, wanted.learners)
	case *remove:
		answer, err = f.api.Delete(ctx, wanted.collectors.Replicas, wanted.learners.Replicas)
	case *restart != "":
		if err := f.api.ReportFailed(ctx, failedOf(*restart)); err != nil {
			return err
		}
		answer, err = f.api.OfCoordinator(ctx)
	default:
		answer, err = f.api.OfCoordinator(ctx)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(p.stdout).Encode(answer)
}

// failedOf sorts names of pods by their role, which is part of the name.
func failedOf(pods string) diserver.Failed {
	var failed diserver.Failed
	for pod := range strings.SplitSeq(pods, ",") {
		if strings.Contains(pod, "-collector-") {
			failed.Collectors = append(failed.Collectors, pod)
		} else {
			failed.Learners = append(failed.Learners, pod)
		}
	}
	return failed
}
