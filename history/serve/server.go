// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"opendilab.org/di-orchestrator/internal/drain"
	"opendilab.org/di-orchestrator/internal/netlimit"
)

const (
	headTime  = 10 * time.Second
	sendTime  = 30 * time.Second
	idleTime  = 2 * time.Minute
	maxHeader = 64 << 10
	// connections bounds all connections, and perAddress those of one client address.
	connections = 1024
	perAddress  = 64
)

// Server serves a handler with TLS.
type Server struct {
	// Address is what it listens on.
	Address        string
	Handler        http.Handler
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// DrainDelay is how long it still accepts calls when it stops.
	DrainDelay time.Duration
	Log        logr.Logger
	// Listening is called with the address, which may have a port that was chosen; nil for nothing.
	Listening func(net.Addr)

	serving atomic.Bool
}

// Ready returns the reason why the server is not ready: it does not listen yet, or it is stopping.
func (s *Server) Ready(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("the history does not listen: it starts, or it is stopping")
	}
	return nil
}

// NeedLeaderElection makes all replicas serve.
func (*Server) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It serves until the context ends, and answers then what it has read.
func (s *Server) Start(ctx context.Context) error {
	opened, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listening on %q: %w", s.Address, err)
	}
	leaving := &drain.Drain{Delay: s.DrainDelay, Finish: requestTime}
	server := &http.Server{
		Handler:           leaving.Handler(s.Handler),
		ReadHeaderTimeout: headTime,
		ReadTimeout:       headTime,
		WriteTimeout:      requestTime + sendTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.GetCertificate},
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnState:         netlimit.Answered,
	}
	s.serving.Store(true)
	if s.Listening != nil {
		s.Listening(opened.Addr())
	}
	s.Log.Info("Serving the history", "address", opened.Addr().String())
	failed := make(chan error, 1)
	go func() {
		failed <- server.ServeTLS(netlimit.Listen(opened, netlimit.Limits{PerAddress: perAddress, Total: connections}), "", "")
	}()
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-failed:
		cause = fmt.Errorf("serving: %w", cause)
	}
	s.serving.Store(false)
	return errors.Join(cause, leaving.Shutdown(ctx, server))
}
