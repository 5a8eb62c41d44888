// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"flag"
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// coordinator asks di-server for collectors and learners and trains with them.
type coordinator struct {
	*following
	system    System
	api       *diserver.Client
	wanted    struct{ collectors, learners diserver.Resources }
	dialer    *peer.Dialer
	crew      *crew
	pool      *train.Pool
	group     *train.Group
	collector *roster
	learner   *roster
}

func runCoordinator(ctx context.Context, system System, args []string) error {
	flags := flag.NewFlagSet("coordinator", flag.ContinueOnError)
	training := newTraining(system, flags)
	patience := newPatience(flags)
	c := &coordinator{system: system, following: newFollowing(flags, time.Second, 2*time.Minute)}
	resourceFlags(flags, "collector", 2, &c.wanted.collectors)
	resourceFlags(flags, "learner", 1, &c.wanted.learners)
	if err := system.Parse(flags, args); err != nil {
		return err
	}
	port, err := system.integer("COORDINATOR_PORT", coordinatorPort)
	if err != nil {
		return err
	}
	if c.api, err = c.client(system); err != nil {
		return err
	}
	ctx, c.crew = newCrew(ctx)
	c.build(patience)
	defer c.dialer.Close()
	mux := peer.NewMux(identify("coordinator", system.name()))
	training.serve(mux)
	if err := c.crew.serve(system, port, mux); err != nil {
		return c.crew.stop(err)
	}
	c.crew.start(c.follow)
	training.config.From = c.held(ctx)
	err = training.run(ctx, c.pool, c.group)
	if err == nil {
		c.takeLeave(ctx)
	}
	return c.crew.stop(err)
}

func resourceFlags(flags *flag.FlagSet, kind string, replicas int, r *diserver.Resources) {
	flags.IntVar(&r.Replicas, kind+"s", replicas, kind+"s to ask for")
	flags.StringVar(&r.CPUs, kind+"-cpus", "", "CPUs of each "+kind+"; empty keeps the template's")
	flags.StringVar(&r.GPUs, kind+"-gpus", "", "GPUs of each "+kind+"; empty keeps the template's")
	flags.StringVar(&r.Memory, kind+"-memory", "", "memory of each "+kind+"; empty keeps the template's")
}

func (c *coordinator) build(p *patience) {
	c.dialer = peer.NewDialer(c.system.Dial)
	c.pool = train.NewPool(p.of(func(url string, err error) { c.collector.lose(url, err) }), c.system.Now)
	c.group = train.NewGroup(p.of(func(url string, err error) { c.learner.lose(url, err) }), c.system.Now)
	c.collector = c.roster(c.system, c.dialer, func(url string, _ peer.Identity) {
		c.pool.Add(url, train.Collecting, c.dialer.Client(url))
	}, c.pool.Remove)
	c.learner = c.roster(c.system, c.dialer, func(url string, _ peer.Identity) {
		c.group.Add(url, c.dialer.Client(url))
	}, c.group.Remove)
}

// held returns the state that the job's learners hold, where this coordinator
// takes the place of another one.
func (c *coordinator) held(ctx context.Context) policy.State {
	ctx, cancel := context.WithTimeout(ctx, c.connectTimeout)
	defer cancel()
	state := c.group.Held(ctx, max(c.wanted.learners.Replicas, 1))
	if state.Round > 0 {
		c.system.Log.Info("going on from the state of the learners", "round", state.Round, "hash", state.Hash())
	}
	return state
}

// follow asks for the replicas once and then follows di-server's list.
func (c *coordinator) follow(ctx context.Context) error {
	if err := c.request(ctx); err != nil {
		return err
	}
	deadline := c.system.Now().Add(c.connectTimeout)
	for {
		if err := c.look(ctx); err != nil {
			if ctx.Err() != nil || c.strict && !diserver.IsLater(err) {
				return err
			}
			c.system.Log.Warn("could not follow di-server's list", "error", err)
		}
		if err := c.checkStarted(deadline); err != nil {
			return err
		}
		if err := pause(ctx, c.interval); err != nil {
			return err
		}
	}
}

// request posts the first demand. A strict client takes no error for an answer, and
// retries a limited time where it is told to.
func (c *coordinator) request(ctx context.Context) error {
	deadline := c.system.Now().Add(c.connectTimeout)
	for {
		_, err := c.api.Create(ctx, c.wanted.collectors, c.wanted.learners)
		if err == nil {
			c.system.Log.Info("asked for replicas", "collectors", c.wanted.collectors.Replicas, "learners", c.wanted.learners.Replicas)
			return nil
		}
		err = fmt.Errorf("ask di-server for replicas: %w", err)
		if ctx.Err() != nil || c.strict && (!diserver.IsLater(err) || c.system.Now().After(deadline)) {
			return err
		}
		c.system.Log.Warn("asking again", "error", err)
		if err := pause(ctx, c.interval); err != nil {
			return err
		}
	}
}

// look reports replicas that failed, then reads the list.
func (c *coordinator) look(ctx context.Context) error {
	if err := c.report(ctx); err != nil {
		return err
	}
	list, err := c.api.OfCoordinator(ctx)
	if err != nil {
		return fmt.Errorf("read di-server's list: %w", err)
	}
	if err := c.collector.sync(ctx, c.crew, list.Collectors); err != nil {
		return err
	}
	return c.learner.sync(ctx, c.crew, list.Learners)
}

func (c *coordinator) report(ctx context.Context) error {
	collectors, learners := c.collector.failed(), c.learner.failed()
	if len(collectors)+len(learners) == 0 {
		return nil
	}
	f := diserver.Failed{Collectors: podNames(collectors), Learners: podNames(learners)}
	if err := c.api.ReportFailed(ctx, f); err != nil {
		return fmt.Errorf("report failed replicas: %w", err)
	}
	c.system.Log.Warn("reported as failed", "collectors", f.Collectors, "learners", f.Learners)
	c.collector.forget(collectors)
	c.learner.forget(learners)
	return nil
}

// checkStarted gives up, as a strict client does, when nothing at all could be
// connected in time.
func (c *coordinator) checkStarted(deadline time.Time) error {
	if !c.strict || c.system.Now().Before(deadline) || c.collector.everConnected() || c.learner.everConnected() {
		return nil
	}
	return fmt.Errorf("strict mode: no collector and no learner could be connected within %s", c.connectTimeout)
}

// takeLeave tells all replicas that they are not needed any more; the operator
// takes them away.
func (c *coordinator) takeLeave(ctx context.Context) {
	for _, r := range []*roster{c.collector, c.learner} {
		r.takeLeaveOfAll(ctx)
	}
}
