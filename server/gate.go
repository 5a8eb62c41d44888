// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/store"
)

// gate is what each request passes before its handler.
type gate struct {
	senders *auth.Authenticator
	watches *store.Watches
	// metrics is set once the routes are known.
	metrics *requestMetrics
	clock   clock.PassiveClock
	// timeout bounds a request. hold bounds the wait of a GET for the watches.
	timeout, hold time.Duration
}

// observe counts, traces and logs a request after its answer.
func (g *gate) observe(c *gin.Context) {
	began := g.clock.Now()
	c.Request = c.Request.WithContext(auth.WithRequest(c.Request.Context()))
	startTrace(c)
	inFlight := g.metrics.inFlight.WithLabelValues()
	inFlight.Inc()
	defer func() {
		inFlight.Dec()
		code := answeredCode(c)
		g.metrics.ended(c, code, g.clock.Since(began))
		endTrace(c, code)
	}()
	c.Next()
}

// awaitWatches makes a request wait while the cache may be older than an answer that its sender has
// already received. A GET waits for a shorter time, because its sender repeats it.
func (g *gate) awaitWatches(c *gin.Context) error {
	if g.watches.Current() {
		return nil
	}
	g.metrics.heldEver.WithLabelValues().Inc()
	held := g.metrics.held.WithLabelValues()
	held.Inc()
	defer held.Dec()
	ctx := c.Request.Context()
	if c.Request.Method == http.MethodGet {
		bounded, cancel := context.WithTimeout(ctx, g.hold)
		defer cancel()
		ctx = bounded
	}
	return g.watches.Wait(ctx)
}

// setTimeout sets the deadline of a request.
func (g *gate) setTimeout(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), g.timeout)
	defer cancel()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
}

// authenticate authenticates the sender of a request.
func (g *gate) authenticate(c *gin.Context) error {
	return g.senders.Authenticate(c.Request.Context(), c.Request)
}
