// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/rollout"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// Timeouts of the servers.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 60 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 5 * time.Second
)

// Mux routes the requests to one process.
type Mux struct {
	mux *http.ServeMux
}

// NewMux returns a mux that answers for health and identity.
func NewMux(identity func() Identity) *Mux {
	m := &Mux{mux: http.NewServeMux()}
	m.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // the prober may have left
	})
	whoami := func(context.Context, Empty) (Identity, error) { return identity(), nil }
	Handle(m, "GET /whoami", whoami)
	Handle(m, "POST /connect", whoami)
	Handle(m, "DELETE /disconnect", func(context.Context, Empty) (Empty, error) { return Empty{}, nil })
	return m
}

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mux.ServeHTTP(w, r)
}

// ServeCollector makes the process play work units.
func (m *Mux) ServeCollector(c train.Collector) {
	Handle(m, "POST /collect", func(ctx context.Context, r CollectRequest) (rollout.Result, error) {
		return c.Collect(ctx, r.Unit, r.Weights)
	})
}

// ServeLearner makes the process learn.
func (m *Mux) ServeLearner(l train.Learner) {
	Handle(m, "GET /state", func(ctx context.Context, _ Empty) (policy.State, error) { return l.State(ctx) })
	Handle(m, "POST /step", l.Step)
}

// Handle adds a route whose request and reply are JSON. An empty request body
// counts as an empty object.
func Handle[Request, Reply any](m *Mux, pattern string, serve func(context.Context, Request) (Reply, error)) {
	m.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if err := decode(http.MaxBytesReader(w, r.Body, maxBody), &request); err != nil {
			write(w, http.StatusBadRequest, Failure{Error: fmt.Sprintf("request body: %v", err)})
			return
		}
		reply, err := serve(r.Context(), request)
		if err != nil {
			status, failure := failureOf(err)
			write(w, status, failure)
			return
		}
		write(w, http.StatusOK, reply)
	})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller may have left
}

// Serve answers on a listener until ctx ends, then waits for the requests
// in flight.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      2 * bodyTimeout,
		IdleTimeout:       idleTimeout,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop serving on %s: %w", listener.Addr(), err)
	}
	return nil
}
