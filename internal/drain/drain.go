// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain lets an HTTP server leave a Service without a call that fails:
// whoever sends to the server learns late that it goes, and connections that are
// kept lead to it even then.
package drain

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Drain is how one server leaves. The zero value leaves at once, and waits for
// no request.
type Drain struct {
	// Delay is how long requests are taken after the server has begun to leave, so
	// that all who send to it learn of it.
	Delay time.Duration
	// Finish bounds how long requests that were taken may go on after that.
	Finish time.Duration

	leaving atomic.Bool
}

// Handler returns a handler whose answers close their connections once the server
// leaves. So the next request comes by another one, which leads to another server;
// were kept connections closed at the end, what is being sent on them would be lost.
func (d *Drain) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Shutdown takes requests for the delay, then no more, and returns when those that
// were taken are answered. That the context has ended, which tells the server to
// leave, changes none of it.
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
