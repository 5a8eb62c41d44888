// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain shuts down an HTTP server behind a Service without a failed call. Clients learn
// late that the server stops, and even then kept connections lead to it.
package drain

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Drain is the graceful shutdown of one server. The zero value stops immediately and waits for no
// request.
type Drain struct {
	// Delay is how long the server accepts requests after the shutdown begins, so that all clients
	// learn of it.
	Delay time.Duration
	// Finish limits how long accepted requests may run after that.
	Finish time.Duration

	leaving atomic.Bool
}

// Handler returns a handler whose answers close their connections once the shutdown begins. The
// next request therefore uses a new connection, to another server. Closing kept connections at the
// end would lose requests that are being sent.
func (d *Drain) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Shutdown accepts requests for the delay and then stops accepting. It returns when all accepted
// requests are answered. It ignores the end of the context, which is the signal to stop.
func (d *Drain) Shutdown(ctx context.Context, server *http.Server) error {
	d.leaving.Store(true)
	timer := time.NewTimer(d.Delay)
	defer timer.Stop()
	<-timer.C
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.Finish)
	defer cancel()
	if err := server.Shutdown(finishing); err != nil {
		return fmt.Errorf("finishing requests: %w", err)
	}
	return nil
}
