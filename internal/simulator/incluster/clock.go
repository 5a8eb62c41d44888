// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the simulated time. It runs faster than the real clock, and stands still while it is held.
type Clock struct {
	real   clock.PassiveClock
	factor float64
	begin  time.Time

	mutex sync.Mutex
	// The mutex guards all fields below. base is the simulated time at the real time since.
	base, since time.Time
	held        bool
	heldFor     time.Duration
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

// Hold stops the clock or lets it go on.
func (c *Clock) Hold(held bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	c.held = held
}

// HeldFor returns the real time for which the clock was held.
func (c *Clock) HeldFor() time.Duration {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	return c.heldFor
}

// advance accounts for the real time since the last call. The caller has the mutex.
func (c *Clock) advance() {
	now := c.real.Now()
	passed := now.Sub(c.since)
	c.since = now
	if c.held {
		c.heldFor += passed
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
	c.base, c.heldFor = c.begin, 0
}
