// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pace makes calls at a fixed rate without retries and counts their results.
package pace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/figures"
)

const (
	// shownFailures is the number of failures that are recorded in full.
	shownFailures = 5
	// inFlight is the maximum number of calls of a prober that are in flight. On a machine that is
	// too slow for the rate, calls would pile up until they time out. That is no property of the
	// server.
	inFlight = 100
)

// ErrNotMade is the result of a call that could not be made. It counts neither as a success nor as a failure.
var ErrNotMade = errors.New("not made")

// Pause waits for a duration, or until the context ends.
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

// Tally contains the results of calls.
type Tally struct {
	// Times are the durations of the calls that succeeded. Failed counts the others.
	Times  []time.Duration
	Failed int
	// NotMade counts the calls that could not be made.
	NotMade int
	// Slowest is the duration of the slowest call, failed or not.
	Slowest time.Duration
	// Failures are the first shownFailures errors.
	Failures []string
}

// Calls returns the number of calls that were made.
func (t *Tally) Calls() int {
	return len(t.Times) + t.Failed
}

// P99 returns the time that 99 of 100 calls did not exceed.
func (t *Tally) P99() time.Duration {
	return figures.Percentile(t.Times, 99)
}

// Add adds another tally.
func (t *Tally) Add(other Tally) {
	t.Times = append(t.Times, other.Times...)
	t.Failed += other.Failed
	t.NotMade += other.NotMade
	t.Slowest = max(t.Slowest, other.Slowest)
	t.Failures = append(t.Failures, other.Failures...)
	t.Failures = t.Failures[:min(len(t.Failures), shownFailures)]
}

// Prober repeats a call at a fixed rate, whether earlier calls succeeded or not. It never retries a
// failed call.
type Prober struct {
	// Name is the name of the call.
	Name string
	// Every is the interval between calls.
	Every time.Duration
	// Call makes the call with the given number.
	Call func(ctx context.Context, number int) error

	stop    context.CancelFunc
	stopped sync.WaitGroup

	mutex sync.Mutex
	// tally is guarded by mutex.
	tally Tally
}

// Start makes calls until Stop.
func (p *Prober) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	p.stopped.Go(func() { p.run(ctx) })
}

// Stop makes no further calls and returns when all have been answered.
func (p *Prober) Stop() {
	if p.stop != nil {
		p.stop()
		p.stopped.Wait()
	}
}

// Take returns the results of the calls that were answered since the last Take.
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
				// A call in flight is completed: an aborted one would count as failed.
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
	if errors.Is(err, ErrNotMade) {
		p.tally.NotMade++
		return
	}
	p.tally.Slowest = max(p.tally.Slowest, took)
	if err == nil {
		p.tally.Times = append(p.tally.Times, took)
		return
	}
	if p.tally.Failed++; len(p.tally.Failures) < shownFailures {
		p.tally.Failures = append(p.tally.Failures, fmt.Sprintf("%s after %s: %v", begun.Format(time.StampMilli), took.Round(time.Millisecond), err))
	}
}
