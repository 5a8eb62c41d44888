// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

const (
	aggregatorInterval = 3 * time.Second
	// partTimeout is the timeout for the first answer of a DDP learner.
	partTimeout = time.Minute
)

// runCollector plays the units that a coordinator sends.
func runCollector(ctx context.Context, p *process, args []string) error {
	if err := p.parse(flag.NewFlagSet("collector", flag.ContinueOnError), args); err != nil {
		return err
	}
	port, err := p.number("COLLECTOR_PORT", collectorPort)
	if err != nil {
		return err
	}
	mux := newMux(identity{Name: p.hostname})
	servePlayer(mux, &local{})
	return p.run(ctx, map[int]http.Handler{port: mux})
}

// runLearner runs a learner of one process. With WORLD_SIZE it runs a part of a data-parallel
// learner, with one learner for each GPU on consecutive ports.
func runLearner(ctx context.Context, p *process, args []string) error {
	if err := p.parse(flag.NewFlagSet("learner", flag.ContinueOnError), args); err != nil {
		return err
	}
	var port, size, localSize, startRank int
	for _, n := range []struct {
		key      string
		into     *int
		fallback int
	}{
		{"LEARNER_PORT", &port, learnerPort}, {"WORLD_SIZE", &size, 1}, {"LOCAL_WORLD_SIZE", &localSize, 1}, {"START_RANK", &startRank, 0},
	} {
		var err error
		if *n.into, err = p.number(n.key, n.fallback); err != nil {
			return err
		}
	}
	if localSize < 1 || startRank+localSize > size {
		return fmt.Errorf("WORLD_SIZE %d, LOCAL_WORLD_SIZE %d, START_RANK %d: want at least one local rank, all below WORLD_SIZE", size, localSize, startRank)
	}
	ports := map[int]http.Handler{}
	for rank := range localSize {
		mux := newMux(identity{Name: p.hostname, Rank: startRank + rank, WorldSize: size})
		serveLearner(mux, &local{})
		ports[port+rank] = mux
	}
	return p.run(ctx, ports)
}

// aggregator combines the parts of a data-parallel learner into one learner.
type aggregator struct {
	*follower
	parts *roster

	mu     sync.Mutex // protects all below
	listed []string   // sorted
	whole  []string   // the list when all parts were connected for the first time
}

func runAggregator(ctx context.Context, p *process, args []string) error {
	flags := flag.NewFlagSet("aggregator", flag.ContinueOnError)
	a := &aggregator{follower: newFollower(p, flags)}
	if err := p.parse(flags, args); err != nil {
		return err
	}
	port, err := p.number("AGGREGATOR_PORT", aggregatorPort)
	if err != nil {
		return err
	}
	if err := a.connect(); err != nil {
		return err
	}
	a.parts = newRoster(a.follower, partTimeout, func(remote, identity) {}, func(string) {})
	mux := newMux(identity{Name: p.hostname})
	serveLearner(mux, a)
	return p.run(ctx, map[int]http.Handler{port: mux}, func(ctx context.Context) error {
		return a.follow(ctx, aggregatorInterval, a.look)
	})
}

func (a *aggregator) look(ctx context.Context) error {
	if lost := a.parts.in(failed); len(lost) > 0 {
		if err := a.api.ReportFailed(ctx, diserver.Failed{Learners: podNames(lost)}); err != nil {
			return fmt.Errorf("report failed learners: %w", err)
		}
		a.log.Warn("reported as failed", "learners", podNames(lost))
		a.parts.forget(lost)
	}
	list, err := a.api.OfAggregator(ctx)
	if err != nil {
		return fmt.Errorf("read di-server's list: %w", err)
	}
	if err := a.setListed(list.Learners); err != nil {
		return err
	}
	return a.parts.sync(ctx, list.Learners)
}

// setListed stores the list. A strict aggregator exits when its list loses a connected part, or
// changes after it was complete. The deployed aggregator cannot handle these changes.
func (a *aggregator) setListed(listed []string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed = slices.Sorted(slices.Values(listed))
	if !a.strict {
		return nil
	}
	for _, url := range a.parts.in(connected) {
		if !slices.Contains(listed, url) {
			return fmt.Errorf("strict mode: learner %s vanished from the aggregator's list", url)
		}
	}
	if a.whole != nil && !slices.Equal(a.listed, a.whole) {
		return fmt.Errorf("strict mode: the aggregator's list changed from %v to %v", a.whole, a.listed)
	}
	return nil
}

// complete returns the parts by rank, once each rank is listed and connected.
func (a *aggregator) complete() ([]remote, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	parts := make([]remote, len(a.listed))
	connected := a.parts.in(connected)
	if len(parts) == 0 || !slices.Equal(connected, a.listed) {
		return nil, fmt.Errorf("%w: %d of %d parts are connected", errNotReady, len(connected), len(parts))
	}
	for _, url := range connected {
		who := a.parts.who(url)
		if who.WorldSize != len(parts) || who.Rank >= len(parts) || parts[who.Rank].address != "" {
			return nil, fmt.Errorf("%w: %s has rank %d of %d, %d parts are listed", errNotReady, url, who.Rank, who.WorldSize, len(parts))
		}
		parts[who.Rank] = remote{a.client, url}
	}
	if a.whole == nil {
		a.whole = a.listed
		a.log.Info("all parts are connected", "worldSize", len(parts))
	}
	return parts, nil
}

// step makes every part take the step. All must end in the same state.
func (a *aggregator) step(ctx context.Context, request stepRequest) (state, error) {
	states, err := a.all(func(r remote) (state, error) { return r.step(ctx, request) })
	if err != nil {
		return state{}, err
	}
	for rank, s := range states {
		if s != states[0] {
			return state{}, diverged(states[0], s, fmt.Sprint("of rank ", rank))
		}
	}
	return states[0], nil
}

// last returns the latest state of any part. A restarted part has none.
func (a *aggregator) last(ctx context.Context) (state, error) {
	states, err := a.all(func(r remote) (state, error) { return r.last(ctx) })
	if err != nil {
		return state{}, err
	}
	return slices.MaxFunc(states, func(a, b state) int { return a.Round - b.Round }), nil
}

// all calls all parts at once.
func (a *aggregator) all(call func(remote) (state, error)) ([]state, error) {
	parts, err := a.complete()
	if err != nil {
		return nil, err
	}
	states, errs := make([]state, len(parts)), make([]error, len(parts))
	var wait sync.WaitGroup
	for rank, part := range parts {
		wait.Go(func() { states[rank], errs[rank] = call(part) })
	}
	wait.Wait()
	return states, errors.Join(errs...)
}
