// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pace makes calls at a pace, never one of them twice, and keeps account
// of what became of them.
package pace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

const (
	// toldFailures is how many failures are kept in full.
	toldFailures = 5
	// inFlight bounds how many calls of a prober may wait for their answers: on a
	// machine that is too slow for the pace they would pile up until they time out,
	// which says nothing of what is called.
	inFlight = 100
)

// Pause waits so long, or until the context ends.
func Pause(ctx context.Context, long time.Duration) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Tally is what became of calls.
type Tally struct {
	// Times are how long those took that did not fail, and Failed how many did.
	Times  []time.Duration
	Failed int
	// Slowest is the longest that a call took, failed or not.
	Slowest time.Duration
	// Failures are the first few of them.
	Failures []string
}

// Calls is how many there were.
func (t *Tally) Calls() int {
	return len(t.Times) + t.Failed
}

// P99 is the time that 99 of 100 calls did not exceed.
func (t *Tally) P99() time.Duration {
	return figures.Percentile(t.Times, 99)
}

// Add adds another tally.
func (t *Tally) Add(other Tally) {
	t.Times = append(t.Times, other.Times...)
	t.Failed += other.Failed
	t.Slowest = max(t.Slowest, other.Slowest)
	t.Failures = append(t.Failures, other.Failures...)
	t.Failures = t.Failures[:min(len(t.Failures), toldFailures)]
}

// Prober makes the same call again and again, each at its time, whatever became
// of those before, and never repeats one that failed.
type Prober struct {
	// Name says what is called.
	Name string
	// Every is the time from call to call.
	Every time.Duration
	// Call makes one call, the number of which it is told.
	Call func(ctx context.Context, number int) error

	stop    context.CancelFunc
	stopped sync.WaitGroup

	mutex sync.Mutex
	// tally is under the mutex.
	tally Tally
}

// Start begins to call, until Stop.
func (p *Prober) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	p.stopped.Go(func() { p.run(ctx) })
}

// Stop makes no more calls, and returns when all have been answered.
func (p *Prober) Stop() {
	if p.stop != nil {
		p.stop()
		p.stopped.Wait()
	}
}

// Take returns what became of the calls that were answered since it was called last.
func (p *Prober) Take() Tally {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	taken := p.tally
	p.tally = Tally{}
	return taken
}

func (p *Prober) run(ctx context.Context) {
	ticker := time.NewTicker(p.Every)
	defer ticker.Stop()
	running := make(chan struct{}, inFlight)
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case <-ctx.Done():
			return
		case running <- struct{}{}:
			p.stopped.Go(func() {
				// What has begun is finished: a call that is broken off has not failed.
				p.once(context.WithoutCancel(ctx), number)
				<-running
			})
		}
	}
}

func (p *Prober) once(ctx context.Context, number int) {
	begun := time.Now()
	err := p.Call(ctx, number)
	took := time.Since(begun)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.tally.Slowest = max(p.tally.Slowest, took)
	if err == nil {
		p.tally.Times = append(p.tally.Times, took)
		return
	}
	if p.tally.Failed++; len(p.tally.Failures) < toldFailures {
		p.tally.Failures = append(p.tally.Failures, fmt.Sprintf("%s after %s: %v", begun.Format(time.StampMilli), took.Round(time.Millisecond), err))
	}
}
