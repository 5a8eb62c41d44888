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

	"opendilab.org/di-orchestrator/controllers/shards"
)

// Election takes shards, and releases them.
type Election struct {
	leases   *Leases
	operator shards.Operator
	held     *Held
	// watches are those of pods; nil if they select all.
	watches *Watches
	turns   *turns
	clock   clock.WithTicker
	log     logr.Logger

	// wishes say what to do about each shard; only the last one counts.
	wishes []chan wish

	sightings shards.Sightings
	vacancies shards.Vacancies
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
	// take is set if the shard is this process's to take, and lease is its Lease then.
	take  bool
	lease shards.Lease
}

// NewElection returns an election of a number of shards, whose pods the watches select; nil for all.
func NewElection(leases *Leases, count int, watches *Watches, clock clock.WithTicker, log logr.Logger) *Election {
	e := &Election{
		leases: leases, operator: shards.Operator{Identity: leases.identity, Leader: leases.key.Name, Count: count},
		held: NewHeld(count), watches: watches, turns: newTurns(count), clock: clock, log: log,
		sightings: shards.Sightings{}, vacancies: shards.Vacancies{}, honoured: map[string]string{},
	}
	for range count {
		e.wishes = append(e.wishes, make(chan wish, 1))
	}
	return e
}

// Held returns the shards whose jobs this process reconciles.
func (e *Election) Held() *Held { return e.held }

type (
	// Program runs until its context ends.
	Program func(context.Context) error
	// Ready reports whether a program may act, and false if the context ended before.
	Ready func(context.Context) bool
)

// Run runs a program, and takes shards from when the program is ready. It releases them after the program
// has ended.
func (e *Election) Run(ctx context.Context, isReady Ready, program Program) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	running.Go(func() {
		if isReady(ctx) {
			e.elect(electing)
		}
	})
	err := program(ctx)
	stop()
	running.Wait()
	return err
}

// elect takes and releases shards until the context ends.
func (e *Election) elect(ctx context.Context) {
	var running sync.WaitGroup
	for shard := range e.wishes {
		running.Go(func() {
			if err := e.campaign(ctx, shard); err != nil {
				e.leases.lose(err)
			}
		})
	}
	ticker := e.clock.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		e.follow(ctx)
		select {
		case <-ticker.C():
		case <-e.leases.changed:
		case <-ctx.Done():
		}
	}
	running.Wait()
}

// follow reads the Leases, and decides what to do about each shard.
func (e *Election) follow(ctx context.Context) {
	// A Lease that is taken after this is not in the list, or not with its term.
	terms := e.turns.now()
	decision, all, err := e.decide(ctx)
	if err != nil {
		e.log.Error(err, "Cannot read the Leases of shards")
		if e.clock.Since(e.read) < RenewDeadline {
			return
		}
	}
	e.watches.narrow()
	e.prepare(all, terms)
	take := e.operator.Take(&decision, e.vacancies, e.read)
	for shard := range e.wishes {
		made := wish{term: terms[shard], isHeld: decision.MayAct && slices.Contains(decision.Held, shard), giveUp: slices.Contains(decision.GiveUp, shard)}
		// A Lease that names this process, but is not held, was taken by a request whose answer was lost.
		made.take = slices.Contains(take, shard) || made.isHeld && made.term == 0
		made.lease = shards.Find(all, shards.LeaseName(e.operator.Leader, shard, e.operator.Count))
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

// prepare watches the pods of shards whose holders may be lost, and leaves those of other operators.
func (e *Election) prepare(all []shards.Lease, terms []int) {
	for shard, term := range terms {
		lease := shards.Find(all, shards.LeaseName(e.operator.Leader, shard, e.operator.Count))
		switch {
		case term > 0 || lease.Holder == e.operator.Identity:
		case e.sightings.Silent(lease, e.read):
			e.watches.follow(shard)
		case lease.Holder != "":
			e.watches.leave(shard)
		}
	}
}

// decide reads the Leases.
func (e *Election) decide(ctx context.Context) (decision shards.Decision, all []shards.Lease, err error) {
	all, err = e.leases.list(ctx)
	if err != nil {
		return shards.Decision{AskFor: -1}, nil, err
	}
	for i := range all {
		if all[i].Ask == e.honoured[all[i].Name] {
			all[i].Ask = ""
		}
	}
	e.read = e.clock.Now()
	decision = e.operator.Decide(all, e.sightings.Live(all, e.read), e.read)
	for _, lease := range all {
		if decision.MayAct && slices.ContainsFunc(decision.GiveUp, func(shard int) bool {
			return lease.Name == shards.LeaseName(e.operator.Leader, shard, e.operator.Count)
		}) {
			e.honoured[lease.Name] = lease.Ask
		}
	}
	return decision, all, nil
}

// campaign takes a shard whenever it is this process's turn, until the context ends. It returns an error as soon as the
// Lease of a held shard is lost.
func (e *Election) campaign(ctx context.Context, shard int) error {
	for {
		select {
		case made := <-e.wishes[shard]:
			if !made.take {
				continue
			}
			if err := e.term(ctx, shard, made.lease); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// term tries to take a shard that is free, and reconciles its jobs until it is released.
func (e *Election) term(ctx context.Context, shard int, free shards.Lease) error {
	ctx, release := context.WithCancel(ctx)
	defer release()
	ended, givenUp := make(chan error, 1), make(chan struct{})
	go func() { ended <- e.hold(ctx, shard, free) }()
	go func() {
		defer close(givenUp)
		e.serve(ctx, shard)
	}()
	select {
	case err := <-ended:
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
	return nil
}

// serve reconciles the jobs of a shard while its Lease is held. It returns when the Lease must be released,
// and no reconcile of these jobs runs; also when the shard was not taken, and is another process's to take.
func (e *Election) serve(ctx context.Context, shard int) {
	defer e.watches.leave(shard)
	defer e.held.set(shard, false)
	var last wish
	var again <-chan time.Time
	for {
		select {
		case last = <-e.wishes[shard]:
		case <-again:
		case <-ctx.Done():
			return
		}
		term := e.turns.now()[shard]
		isHeld := last.isHeld && !last.giveUp && last.term > 0 && last.term == term
		again = nil
		if isHeld && !e.held.has(shard) && !e.watches.follow(shard) {
			isHeld, again = false, e.clock.After(settleInterval)
		}
		if e.held.set(shard, isHeld) {
			e.log.Info("Shard", "shard", shard+1, "of", e.operator.Count, "reconciled", isHeld)
		}
		if last.giveUp || term == 0 && !last.take {
			return
		}
	}
}

// hold takes a shard, and renews its Lease until the context ends. It returns an error if the Lease is lost.
func (e *Election) hold(ctx context.Context, shard int, free shards.Lease) error {
	name := shards.LeaseName(e.operator.Leader, shard, e.operator.Count)
	lease := e.leases.lock(name)
	// A Lease that could not be released is not renewed any more, but its jobs are not reconciled either.
	defer lease.stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: name, Lock: &lock{Interface: lease, shard: shard, turns: e.turns, free: free},
		LeaseDuration: LeaseDuration, RenewDeadline: RenewDeadline, RetryPeriod: RetryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { e.leases.wake() },
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
