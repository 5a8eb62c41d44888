// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"fmt"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/rollout"
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
	patience Patience
	now      func() time.Time

	mu      sync.Mutex // protects all below, and the contents of members and batch
	members map[string]*poolMember
	changed chan struct{}
}

type poolMember struct {
	name      string
	task      Task
	collector Collector
	failures  int
	retryAt   time.Time
	// leave ends what the member does in the present batch.
	leave context.CancelFunc
}

// batch is the work of one call of Run.
type batch struct {
	units   []rollout.Unit
	weights policy.Weights
	results []rollout.Result
	waiting []int // indexes of units that no collector plays
	left    int   // units without a result
	done    chan struct{}
	engaged map[*poolMember]bool
}

// NewPool returns a pool without members.
func NewPool(patience Patience, now func() time.Time) *Pool {
	return &Pool{patience: patience, now: now, members: map[string]*poolMember{}, changed: make(chan struct{})}
}

// Add makes a collector a member, in place of one of the same name.
func (p *Pool) Add(name string, task Task, collector Collector) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.members[name]; ok {
		old.leave()
	}
	p.members[name] = &poolMember{name: name, task: task, collector: collector, leave: func() {}}
	p.broadcast()
}

// Remove ends the membership of a collector. What it was playing goes to others.
func (p *Pool) Remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m, ok := p.members[name]; ok {
		m.leave()
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
// It waits for collectors as long as ctx lasts.
func (p *Pool) Run(ctx context.Context, units []rollout.Unit, weights policy.Weights) ([]rollout.Result, error) {
	var wait sync.WaitGroup
	defer wait.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &batch{
		units: units, weights: weights, results: make([]rollout.Result, len(units)),
		left: len(units), done: make(chan struct{}), engaged: map[*poolMember]bool{},
	}
	for i := range units {
		b.waiting = append(b.waiting, i)
	}
	for {
		changed := p.engage(ctx, b, &wait)
		select {
		case <-b.done:
			return b.results, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for collectors: %w", context.Cause(ctx))
		case <-changed:
		}
	}
}

// engage sets all members to work that are not yet part of the batch.
func (p *Pool) engage(ctx context.Context, b *batch, wait *sync.WaitGroup) (changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if b.engaged[m] {
			continue
		}
		b.engaged[m] = true
		ctx, cancel := context.WithCancel(ctx)
		m.leave = cancel
		wait.Go(func() {
			defer cancel()
			p.serve(ctx, m, b)
		})
	}
	return p.changed
}

// broadcast wakes everybody who waits for a change. The lock must be held.
func (p *Pool) broadcast() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// serve has one member play units until its context ends.
func (p *Pool) serve(ctx context.Context, m *poolMember, b *batch) {
	for {
		wait(ctx, p.pauseOf(m), nil)
		index, ok := p.next(ctx, m, b)
		if !ok {
			return
		}
		unit := b.units[index]
		result, err := m.collector.Collect(ctx, unit, b.weights)
		if err == nil {
			err = result.Check(unit)
		}
		if err == nil {
			p.finish(m, b, index, result)
		} else if p.giveBack(ctx, m, b, index) {
			p.patience.lose(m.name, err)
		}
	}
}

// pauseOf is how long a member that failed has to wait.
func (p *Pool) pauseOf(m *poolMember) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.retryAt.Sub(p.now())
}

// next waits for a unit that m may play, as long as ctx lasts.
func (p *Pool) next(ctx context.Context, m *poolMember, b *batch) (index int, ok bool) {
	for {
		if ctx.Err() != nil {
			return 0, false
		}
		index, changed := p.take(m, b)
		if changed == nil {
			return index, true
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-changed:
		}
	}
}

// take returns a unit that m may play, or what to wait for.
func (p *Pool) take(m *poolMember, b *batch) (index int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, index := range b.waiting {
		if p.suits(m, b.units[index].Kind) {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			return index, nil
		}
	}
	return 0, p.changed
}

// suits reports whether m may play units of a kind. The lock must be held.
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

// giveBack returns a unit that m failed to play. It counts the failure, unless
// batch or membership had ended, and reports whether m counts as lost now.
func (p *Pool) giveBack(ctx context.Context, m *poolMember, b *batch, index int) (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.waiting = append(b.waiting, index)
	p.broadcast()
	if ctx.Err() != nil {
		return false
	}
	m.failures++
	m.retryAt = p.now().Add(p.patience.backoff(m.failures))
	return m.failures == p.patience.Attempts
}
