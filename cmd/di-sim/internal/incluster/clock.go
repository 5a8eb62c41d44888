// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the simulated time. It runs faster than the real clock, and as fast while it is slowed.
type Clock struct {
	real   clock.PassiveClock
	factor float64
	begin  time.Time

	mutex sync.Mutex
	// The mutex guards all fields below. base is the simulated time at the real time since.
	base, since time.Time
	isSlow      bool
	slowFor     time.Duration
}

// NewClock returns a clock that starts at the real time and runs factor times as fast.
func NewClock(real clock.PassiveClock, factor float64) *Clock {
	now := real.Now()
	// The API stores whole seconds.
	begin := now.Truncate(time.Second)
	return &Clock{real: real, factor: factor, begin: begin, base: begin, since: now}
}

// Now returns the simulated time.
func (c *Clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	return c.base
}

// Seconds returns the whole simulated seconds since the begin.
func (c *Clock) Seconds() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	return int(c.base.Sub(c.begin) / time.Second)
}

// At returns the simulated time that many seconds after the begin.
func (c *Clock) At(seconds int) time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.begin.Add(time.Duration(seconds) * time.Second)
}

// Slow lets the clock run as fast as the real one, or faster again.
func (c *Clock) Slow(isSlow bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	c.isSlow = isSlow
}

// SlowFor returns for how long the clock was slow.
func (c *Clock) SlowFor() time.Duration {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	return c.slowFor
}

// advance accounts for the real time since the last call. The caller has the mutex.
func (c *Clock) advance() {
	now := c.real.Now()
	passed := now.Sub(c.since)
	c.since = now
	if c.isSlow {
		c.slowFor += passed
		c.base = c.base.Add(passed)
		return
	}
	c.base = c.base.Add(time.Duration(float64(passed) * c.factor))
}

// Real returns how long a simulated duration takes.
func (c *Clock) Real(simulated time.Duration) time.Duration {
	return time.Duration(float64(simulated) / c.factor)
}

// Restart sets the clock back to its begin.
func (c *Clock) Restart() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	c.begin = c.since.Truncate(time.Second)
	c.base, c.slowFor = c.begin, 0
}
