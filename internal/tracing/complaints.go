// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// complaintInterval is how often a log is told that traces do not get anywhere.
const complaintInterval = 5 * time.Minute

// Complaints log what goes wrong with traces, which is that a collector is not
// reached, once in a while. They are OpenTelemetry's handler of errors.
type Complaints struct {
	// Log takes the lines.
	Log logr.Logger
	// Clock tells the time. Required.
	Clock clock.PassiveClock

	lock   sync.Mutex
	last   time.Time
	hidden int
}

// Handle implements otel.ErrorHandler.
func (c *Complaints) Handle(err error) {
	if hidden, tell := c.due(); tell {
		c.Log.Info("Dropping traces that cannot be exported", "reason", err.Error(), "notLogged", hidden)
	}
}

// due reports whether it is time for another line, and how many errors had none.
func (c *Complaints) due() (int, bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	now := c.Clock.Now()
	if !c.last.IsZero() && now.Sub(c.last) < complaintInterval {
		c.hidden++
		return 0, false
	}
	hidden := c.hidden
	c.last, c.hidden = now, 0
	return hidden, true
}
