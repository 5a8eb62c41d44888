// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/internal/shards"
)

const (
	// leaseDuration is how long after the last renewal another operator waits before it takes a shard.
	leaseDuration = 10 * time.Second
	// renewDeadline is how long a renewal is retried before the process ends. client-go then tries to release
	// the Lease for half that time. Together with one retry period this is still less than leaseDuration.
	renewDeadline = 5 * time.Second
	retryPeriod   = time.Second
	// interval is the interval at which all Leases are read, and askInterval that of requests for a shard.
	interval    = time.Second
	askInterval = 5 * time.Second
)

// Election takes shards, and releases them.
type Election struct {
	leases   *Leases
	operator shards.Operator
	held     *Held
	turns    *turns
	clock    clock.WithTicker
	log      logr.Logger

	// wishes say what to do about each shard; only the last one counts.
	wishes []chan wish
	// taken wakes the election up when a Lease was taken.
	taken chan struct{}

	sightings shards.Sightings
	// read is when the Leases were last read, and asked when a shard was last asked for. honoured are the
	// requests that were granted, by Lease.
	read, asked time.Time
	honoured    map[string]string
}

// wish is what to do about a shard. It is void if the term of the shard has changed since the Leases were
// read.
type wish struct {
	term           int
	isHeld, giveUp bool
}

// NewElection returns an election of a number of shards.
func NewElection(leases *Leases, count int, clock clock.WithTicker, log logr.Logger) *Election {
	e := &Election{
		leases: leases, operator: shards.Operator{Identity: leases.identity, Leader: leases.key.Name, Count: count},
		held: NewHeld(count), turns: newTurns(leases.identity, count, clock), clock: clock, log: log,
		taken: make(chan struct{}, 1), sightings: shards.Sightings{}, honoured: map[string]string{},
	}
	for range count {
		e.wishes = append(e.wishes, make(chan wish, 1))
	}
	return e
}

// Held returns the shards whose jobs this process reconciles.
func (e *Election) Held() *Held { return e.held }

// Run runs a program, and takes shards from when the program is ready. It releases them after the program
// has ended. If a Lease is lost, it returns while the program may still run, so the process must end.
func (e *Election) Run(ctx context.Context, isReady func(context.Context) bool, program func(context.Context) error) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended, lost := make(chan error, 1), make(chan error, len(e.wishes))
	var running sync.WaitGroup
	running.Go(func() {
		if isReady(ctx) {
			e.elect(electing, lost)
		}
	})
	go func() {
		err := program(ctx)
		stop()
		running.Wait()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case err := <-lost:
		return err
	}
}

// elect takes and releases shards until the context ends.
func (e *Election) elect(ctx context.Context, lost chan<- error) {
	var running sync.WaitGroup
	for shard := range e.wishes {
		running.Go(func() {
			if err := e.campaign(ctx, shard); err != nil {
				lost <- err
			}
		})
	}
	ticker := e.clock.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		e.follow(ctx)
		select {
		case <-ticker.C():
		case <-e.taken:
		case <-ctx.Done():
		}
	}
	running.Wait()
}

// follow reads the Leases, and decides what to do about each shard.
func (e *Election) follow(ctx context.Context) {
	// A Lease that is taken after this is not in the list, or not with its term.
	terms := e.turns.now()
	decision, err := e.decide(ctx)
	if err != nil {
		e.log.Error(err, "Cannot read the Leases of shards")
		if e.clock.Since(e.read) < renewDeadline {
			return
		}
	}
	e.turns.allow(decision.MayAct)
	for shard := range e.wishes {
		made := wish{term: terms[shard], isHeld: decision.MayAct && slices.Contains(decision.Held, shard), giveUp: slices.Contains(decision.GiveUp, shard)}
		select {
		case <-e.wishes[shard]:
		default:
		}
		e.wishes[shard] <- made
	}
	if decision.AskFor >= 0 && e.clock.Since(e.asked) > askInterval {
		e.asked = e.clock.Now()
		name := shards.LeaseName(e.operator.Leader, decision.AskFor, e.operator.Count)
		if err := e.leases.annotate(ctx, name, annotationAsk, shards.Ask(e.operator.Identity, e.asked)); err != nil {
			e.log.Error(err, "Cannot ask for a shard")
		}
	}
}

// decide reads the Leases.
func (e *Election) decide(ctx context.Context) (shards.Decision, error) {
	all, err := e.leases.list(ctx)
	if err != nil {
		return shards.Decision{AskFor: -1}, err
	}
	for i := range all {
		if all[i].Ask == e.honoured[all[i].Name] {
			all[i].Ask = ""
		}
	}
	e.read = e.clock.Now()
	decision := e.operator.Decide(all, e.sightings.Live(all, e.read), e.read)
	for _, lease := range all {
		if decision.MayAct && slices.ContainsFunc(decision.GiveUp, func(shard int) bool {
			return lease.Name == shards.LeaseName(e.operator.Leader, shard, e.operator.Count)
		}) {
			e.honoured[lease.Name] = lease.Ask
		}
	}
	return decision, nil
}

// campaign takes a shard whenever it is free, until the context ends. It returns an error as soon as the
// Lease of a held shard is lost.
func (e *Election) campaign(ctx context.Context, shard int) error {
	for ctx.Err() == nil {
		term, release := context.WithCancel(ctx)
		ended, givenUp := make(chan error, 1), make(chan struct{})
		go func() { ended <- e.hold(term, shard) }()
		go func() {
			defer close(givenUp)
			e.serve(term, shard)
		}()
		select {
		case err := <-ended:
			release()
			if err != nil {
				return err
			}
		case <-givenUp:
			release()
			if err := <-ended; err != nil {
				return err
			}
		}
		<-givenUp
		e.turns.end(shard)
	}
	return nil
}

// serve reconciles the jobs of a shard while its Lease is held. It returns when the Lease must be released,
// and no reconcile of these jobs runs.
func (e *Election) serve(ctx context.Context, shard int) {
	defer e.held.set(shard, false)
	for {
		select {
		case made := <-e.wishes[shard]:
			isHeld := made.isHeld && !made.giveUp && made.term > 0 && made.term == e.turns.now()[shard]
			if e.held.set(shard, isHeld) {
				e.log.Info("Shard", "shard", shard+1, "of", e.operator.Count, "reconciled", isHeld)
			}
			if made.giveUp {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// hold takes a shard, and renews its Lease until the context ends. It returns an error if the Lease is lost.
func (e *Election) hold(ctx context.Context, shard int) error {
	name := shards.LeaseName(e.operator.Leader, shard, e.operator.Count)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: name, Lock: &lock{Interface: e.leases.lock(name), shard: shard, turns: e.turns},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				select {
				case e.taken <- struct{}{}:
				default:
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("making the election of Lease %s: %w", name, err)
	}
	// It would log each Lease that is left to others as an error.
	elector.Run(klog.NewContext(ctx, logr.Discard()))
	if ctx.Err() == nil {
		return fmt.Errorf("lost Lease %s", name)
	}
	return nil
}
