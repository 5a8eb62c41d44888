// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/store"
)

// Start implements manager.Runnable. It listens once the caches are synced, because clients trust every
// answer. It serves until the context ends. Then it drains: it refuses new connections and finishes the
// requests that it has read.
func (s *Server) Start(ctx context.Context) error {
	if err := store.WarmUp(ctx, s.options.Cache); err != nil {
		return err
	}
	if err := s.followRequests(ctx); err != nil {
		return err
	}
	if err := s.followJobs(ctx); err != nil {
		return err
	}
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           s.drain.Handler(s.handler),
		ReadHeaderTimeout: min(headTime, s.options.Times.Read),
		ReadTimeout:       s.options.Times.Read,
		WriteTimeout:      s.options.Times.Read + s.options.Times.Request + sendTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		TLSConfig:         s.tlsConfig(),
		ErrorLog:          s.log.http(),
		// A draining server finishes the requests that it has read.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	return s.serve(ctx, server, listeners)
}

// tlsConfig returns the TLS configuration. It names HTTP/2 because the first listener sets up HTTP/2 for
// all listeners, and a listener without TLS would not name it.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: s.options.GetCertificate,
	}
}

// serve serves on all listeners until the context ends or one of them fails.
func (s *Server) serve(ctx context.Context, server *http.Server, listeners []listener) error {
	failed := make(chan error, len(listeners))
	for _, each := range listeners {
		s.options.Log.Info("Serving", "address", each.Addr().String(), "tls", each.tls)
		go func() { failed <- each.serve(server) }()
	}
	s.logMode()
	s.serving.Store(true)
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-failed:
		cause = fmt.Errorf("serving: %w", cause)
	}
	s.serving.Store(false)
	close(s.watchers.stopping)
	err := s.drain.Shutdown(ctx, server)
	s.reports.pending.Flush()
	for _, writer := range s.rates.both() {
		writer.Flush()
	}
	return errors.Join(cause, err)
}

// logMode logs at every start whether unauthenticated callers are admitted.
func (s *Server) logMode() {
	switch s.options.Identity {
	case auth.ModeDisabled:
		s.options.Log.Info("WARNING: authentication is off: any client that reaches this server can read and resize every job.  " +
			"Set identity to enforce or legacy")
	case auth.ModeLegacy:
		s.options.Log.Info("Unauthenticated callers are admitted, counted and logged: set identity to enforce once there are none")
	case auth.ModeEnforce:
	}
}

// listener is a listener with or without TLS.
type listener struct {
	net.Listener
	tls bool
}

func (l listener) serve(server *http.Server) error {
	if l.tls {
		// The certificate comes from the server's configuration.
		return server.ServeTLS(l.Listener, "", "")
	}
	return server.Serve(l.Listener)
}

// podsAt returns how many pods of jobs have an address. Those in their host's network share that of a node, and each
// may hold a connection for its watch.
func (s *Server) podsAt(ctx context.Context, address string) int {
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return 0
	}
	pods, err := s.cluster.Pods(ctx, store.AddressIndex, parsed.Unmap().WithZone("").String())
	if err != nil {
		return 0
	}
	return len(pods)
}

// listen listens on all addresses. If one fails, it listens on none.
func (s *Server) listen(ctx context.Context) ([]listener, error) {
	addresses := slices.Clone(s.options.Addresses)
	if s.options.TLSAddress != "" {
		addresses = append(addresses, s.options.TLSAddress)
	}
	listeners := make([]listener, 0, len(addresses))
	var config net.ListenConfig
	for i, address := range addresses {
		opened, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			for _, each := range listeners {
				err = errors.Join(err, each.Close())
			}
			return nil, fmt.Errorf("listening on %q: %w", address, err)
		}
		listeners = append(listeners, listener{tls: i >= len(s.options.Addresses), Listener: netlimit.Listen(opened, netlimit.Limits{
			PerAddress: s.options.Limits.ConnectionsPerAddress, Total: s.options.Limits.Connections,
			Clients: func(address string) int { return s.podsAt(ctx, address) }, Refused: s.limited.connectionRefused,
		})})
	}
	return listeners, nil
}
