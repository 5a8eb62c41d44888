// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
)

// entrance is where clients reach a server, whichever process serves just
// then: what a Service is. A connection goes on from the address it came from,
// as the server tells callers by it. While nobody serves it is closed.
type entrance struct {
	listener net.Listener

	mutex  sync.Mutex
	target string
	open   map[net.Conn]string
}

func newEntrance(ctx context.Context) (*entrance, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	return &entrance{listener: listener, open: map[net.Conn]string{}}, nil
}

func (e *entrance) url() string {
	return "http://" + e.listener.Addr().String()
}

// run lets clients in until the context ends.
func (e *entrance) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = e.listener.Close() })
	defer stop()
	for {
		from, err := e.listener.Accept()
		if err != nil {
			return
		}
		go e.pass(ctx, from)
	}
}

// lead lets new connections lead to the address, "" for nowhere.
func (e *entrance) lead(target string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.target = target
}

// cut closes all connections and lets no new one in.
func (e *entrance) cut() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.target = ""
	for connection := range e.open {
		_ = connection.Close()
	}
	clear(e.open)
}

// enter registers a connection, and returns where it leads to.
func (e *entrance) enter(connection net.Conn) string {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.target != "" {
		e.open[connection] = e.target
	}
	return e.target
}

func (e *entrance) leave(connection net.Conn) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.open, connection)
}

func (e *entrance) pass(ctx context.Context, from net.Conn) {
	defer func() { _ = from.Close() }()
	target := e.enter(from)
	defer e.leave(from)
	if target == "" {
		return
	}
	address, err := netip.ParseAddrPort(from.RemoteAddr().String())
	if err != nil {
		return
	}
	to, err := dialFrom(address.Addr().String())(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// dialFrom dials from one of this machine's addresses.
func dialFrom(address string) func(ctx context.Context, network, target string) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return dialer.DialContext
}
