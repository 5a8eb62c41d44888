// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// serve serves and works until the context ends, and ends all requests.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, work func(context.Context)) error {
	serving := &http.Server{
		Handler: bound(handler), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ctx, end := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() { work(ctx) })
	stop := context.AfterFunc(ctx, func() { _ = serving.Close() })
	defer stop()
	err := serving.Serve(listener)
	if ctx.Err() != nil {
		err = nil // The user has ended the command.
	}
	end()
	working.Wait()
	return err
}

// bound limits how long a browser may take to read an answer. A deadline outlives its request, so
// that each request sets one; streams set one for each event.
func bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not every writer has a deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience + slowest))
		next.ServeHTTP(w, r)
	})
}
