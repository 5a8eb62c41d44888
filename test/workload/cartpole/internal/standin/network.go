// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package standin plays the cluster around the program, in one process: a
// network in which pods have names, a keeper that starts pods and restarts
// them, and as much of di-server as the program calls. It serves local runs and
// tests of the program; it is no model of the real di-server.
package standin

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// Network gives the ports of pods names. All of it is on the loopback device.
type Network struct {
	mu    sync.Mutex        // protects ports
	ports map[string]string // host:port as pods see it -> address on loopback
}

// NewNetwork returns a network without hosts.
func NewNetwork() *Network {
	return &Network{ports: map[string]string{}}
}

// Host is one host's view of the network.
type Host struct {
	network *Network
	name    string
}

// Host returns the host of the given name.
func (n *Network) Host(name string) *Host {
	return &Host{network: n, name: name}
}

// Listen opens a port of the host. The port vanishes when the listener closes.
func (h *Host) Listen(ctx context.Context, port int) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.name, err)
	}
	name := net.JoinHostPort(h.name, strconv.Itoa(port))
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if h.network.ports[name] != "" {
		listener.Close() //nolint:errcheck // it was never used
		return nil, fmt.Errorf("host %s: port %d is in use", h.name, port)
	}
	h.network.ports[name] = listener.Addr().String()
	return &namedListener{Listener: listener, network: h.network, name: name}, nil
}

// Dial connects to a port of a host by the host's name.
func (h *Host) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	if host == "localhost" {
		host = h.name
	}
	h.network.mu.Lock()
	loopback, ok := h.network.ports[net.JoinHostPort(host, port)]
	h.network.mu.Unlock()
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", loopback)
}

type namedListener struct {
	net.Listener
	network *Network
	name    string
}

// Close implements net.Listener.
func (l *namedListener) Close() error {
	l.network.mu.Lock()
	delete(l.network.ports, l.name)
	l.network.mu.Unlock()
	return l.Listener.Close()
}
