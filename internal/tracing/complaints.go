// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// complaintInterval is the minimum time between log lines about failed exports.
const complaintInterval = 5 * time.Minute

// Complaints logs errors of traces, such as an unreachable collector, at a limited
// rate. It is OpenTelemetry's error handler.
type Complaints struct {
	// Log receives the lines.
	Log logr.Logger
	// Clock is the source of time. Required.
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

// due reports whether the next line is due, and how many errors were not logged.
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
