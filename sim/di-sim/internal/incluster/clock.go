// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the simulated time. It runs faster than the real clock for the durations that Hurry allows, and as
// fast otherwise.
type Clock struct {
	real   clock.PassiveClock
	factor float64
	begin  time.Time

	mutex sync.Mutex
	// The mutex guards all fields below. base is the simulated time at the real time since. hurry is the
	// simulated duration for which the clock is still fast.
	base, since    time.Time
	hurry, slowFor time.Duration
}

// NewClock returns a clock that starts at the real time, and runs factor times as fast when it is fast.
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

// Since returns the simulated duration since a simulated time.
func (c *Clock) Since(since time.Time) time.Duration { return c.Now().Sub(since) }

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

// Hurry lets the clock be fast for a simulated duration from now on. It replaces what an earlier call allowed.
func (c *Clock) Hurry(duration time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	c.hurry = duration
}

// SlowFor returns for how long, in real time, the clock was slow.
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
	fast, slow := time.Duration(float64(passed)*c.factor), time.Duration(0)
	if fast > c.hurry {
		fast, slow = c.hurry, passed-c.Real(c.hurry)
	}
	c.hurry -= fast
	c.slowFor += slow
	c.base = c.base.Add(fast + slow)
}

// Real returns how long a simulated duration takes.
func (c *Clock) Real(simulated time.Duration) time.Duration {
	return time.Duration(float64(simulated) / c.factor)
}

// Restart sets the clock back to its begin. It is slow until Hurry is called.
func (c *Clock) Restart() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	c.begin = c.since.Truncate(time.Second)
	c.base, c.hurry, c.slowFor = c.begin, 0, 0
}
