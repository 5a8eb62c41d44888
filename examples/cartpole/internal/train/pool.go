// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"fmt"
	"sync"

	"opendilab.org/di-orchestrator/examples/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/examples/cartpole/internal/rollout"
)

// Collector plays work units.
type Collector interface {
	Collect(ctx context.Context, unit rollout.Unit, weights policy.Weights) (rollout.Result, error)
}

// LocalCollector is a collector in this process.
type LocalCollector struct{}

// Collect implements Collector.
func (LocalCollector) Collect(ctx context.Context, u rollout.Unit, w policy.Weights) (rollout.Result, error) {
	return rollout.Play(ctx, u, w)
}

// Task says which units a member of a pool plays.
type Task int

// The tasks of a pool's members.
const (
	// Collecting plays units to learn from, and evaluations while the pool has
	// no working evaluator.
	Collecting Task = iota
	// Evaluating plays evaluations alone.
	Evaluating
)

// Pool hands work units to a changing set of collectors. A unit whose collector
// fails goes to another one; while there is none, the work waits.
type Pool struct {
	ctx      context.Context //nolint:containedctx // the life of the members' goroutines, not of a call
	patience Patience

	mu      sync.Mutex // protects all below
	members map[string]*poolMember
	batch   *batch
	changed chan struct{}
}

type poolMember struct {
	name      string
	task      Task
	collector Collector
	failures  int
	cancel    context.CancelFunc
}

// batch is the work of one call of Run.
type batch struct {
	ctx     context.Context //nolint:containedctx // ends with the call of Run that the batch belongs to
	units   []rollout.Unit
	weights policy.Weights
	results []rollout.Result
	waiting []int // indexes of units that nobody plays, in order
	left    int   // units without a result
	done    chan struct{}
}

// NewPool returns a pool without members. Its members work until ctx ends.
func NewPool(ctx context.Context, patience Patience) *Pool {
	return &Pool{ctx: ctx, patience: patience, members: map[string]*poolMember{}, changed: make(chan struct{})}
}

// Add makes a collector a member, in place of one of the same name.
func (p *Pool) Add(name string, task Task, collector Collector) {
	ctx, cancel := context.WithCancel(p.ctx)
	m := &poolMember{name: name, task: task, collector: collector, cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.members[name]; ok {
		old.cancel()
	}
	p.members[name] = m
	p.broadcast()
	go p.serve(ctx, m)
}

// Remove ends the membership of a collector. What it was playing goes to others.
func (p *Pool) Remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m, ok := p.members[name]; ok {
		m.cancel()
		delete(p.members, name)
		p.broadcast()
	}
}

// Count is the number of members with the given task.
func (p *Pool) Count(task Task) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := 0
	for _, m := range p.members {
		if m.task == task {
			count++
		}
	}
	return count
}

// Run has all units played and returns their results in the order of the units.
// It waits for collectors as long as ctx lasts. Calls must not overlap.
func (p *Pool) Run(ctx context.Context, units []rollout.Unit, weights policy.Weights) ([]rollout.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &batch{
		ctx: ctx, units: units, weights: weights,
		results: make([]rollout.Result, len(units)), left: len(units), done: make(chan struct{}),
	}
	for i := range units {
		b.waiting = append(b.waiting, i)
	}
	p.begin(b)
	defer p.begin(nil)
	select {
	case <-b.done:
		return b.results, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for collectors: %w", context.Cause(ctx))
	}
}

func (p *Pool) begin(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = b
	p.broadcast()
}

// broadcast wakes everybody who waits for a change. The lock must be held.
func (p *Pool) broadcast() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// serve has one member play units until its context ends.
func (p *Pool) serve(ctx context.Context, m *poolMember) {
	for {
		b, index := p.next(ctx, m)
		if b == nil {
			return
		}
		result, err := collect(ctx, m, b, index)
		if err == nil {
			p.finish(m, b, index, result)
			continue
		}
		failures := p.giveBack(m, b, index)
		if failures == p.patience.Attempts {
			p.patience.lose(m.name, err)
		}
		wait(ctx, p.patience.backoff(failures), nil)
	}
}

// collect has one unit played for as long as both member and batch live.
func collect(ctx context.Context, m *poolMember, b *batch, index int) (rollout.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	unit := b.units[index]
	result, err := m.collector.Collect(ctx, unit, b.weights)
	if err != nil {
		return rollout.Result{}, err
	}
	return result, result.Check(unit)
}

// next waits for a unit that m may play. It returns nil when ctx ends.
func (p *Pool) next(ctx context.Context, m *poolMember) (*batch, int) {
	for {
		b, index, changed := p.take(m)
		if b != nil {
			return b, index
		}
		select {
		case <-ctx.Done():
			return nil, 0
		case <-changed:
		}
	}
}

func (p *Pool) take(m *poolMember) (*batch, int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.batch == nil || p.members[m.name] != m {
		return nil, 0, p.changed
	}
	b := p.batch
	for i, index := range b.waiting {
		if p.suits(m, b.units[index].Kind) {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			return b, index, nil
		}
	}
	return nil, 0, p.changed
}

// suits tells whether m may play units of a kind. The lock must be held.
func (p *Pool) suits(m *poolMember, kind rollout.Kind) bool {
	if m.task == Evaluating {
		return kind == rollout.Evaluate
	}
	if kind == rollout.Collect {
		return true
	}
	for _, other := range p.members {
		if other.task == Evaluating && other.failures == 0 {
			return false
		}
	}
	return true
}

func (p *Pool) finish(m *poolMember, b *batch, index int, result rollout.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.failures = 0
	b.results[index] = result
	b.left--
	if b.left == 0 {
		close(b.done)
	}
}

// giveBack returns a unit that m failed to play and counts the failure. It
// returns how often m has failed in a row, 0 if batch or membership had ended.
func (p *Pool) giveBack(m *poolMember, b *batch, index int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.waiting = append(b.waiting, index)
	p.broadcast()
	if b.ctx.Err() != nil || p.members[m.name] != m {
		return 0
	}
	m.failures++
	return m.failures
}
