// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxy forwards TCP connections as a Service does. A test can break the path to a server
// and redirect it to another server.
package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// State is how the proxy treats connections.
type State string

const (
	// Open forwards connections.
	Open State = "open"
	// Cut closes open and new connections.
	Cut State = "cut"
	// BlackHole forwards nothing and closes nothing. Data sent meanwhile arrives when the proxy is
	// open again because TCP resends it.
	BlackHole State = "black hole"
	// Mute forwards what clients send and drops what the server answers. Connections that lost something are
	// closed when the proxy is open again: the requests are executed, and their answers are lost.
	Mute State = "mute"
)

// Proxy forwards connections to an address. It keeps the source address because di-server
// identifies callers by it.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mutex   sync.Mutex
	targets []string
	state   State
	// changed is closed when the state changes.
	changed     chan struct{}
	connections map[net.Conn]bool
}

// New starts a proxy that listens on an address until Close. It forwards to the first target that
// accepts. Without a target it closes connections.
func New(ctx context.Context, address string, targets ...string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	p := &Proxy{listener: listener, targets: targets, state: Open, changed: make(chan struct{}), connections: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Address returns the address for clients.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Close cuts all connections and returns when all are closed.
func (p *Proxy) Close() error {
	p.Set(Cut)
	err := p.listener.Close()
	p.running.Wait()
	return err
}

// Set changes the state.
func (p *Proxy) Set(state State) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.state = state
	close(p.changed)
	p.changed = make(chan struct{})
	if state == Cut {
		for connection := range p.connections {
			_ = connection.Close()
		}
	}
}

// Lead forwards new connections to other targets.
func (p *Proxy) Lead(targets ...string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.targets = targets
}

func (p *Proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.forward(from) })
	}
}

// forward forwards one connection in both directions until either side closes it.
func (p *Proxy) forward(from net.Conn) {
	defer p.release(from)
	if !p.hold(from) || !p.passes() {
		return
	}
	to, err := p.dial(from)
	if err != nil {
		return
	}
	defer p.release(to)
	if !p.hold(to) {
		return
	}
	ended := make(chan struct{}, 2)
	p.running.Go(func() {
		p.copy(from, to, p.passes)
		ended <- struct{}{}
	})
	p.running.Go(func() {
		p.copy(to, from, p.answers)
		ended <- struct{}{}
	})
	<-ended
}

// dial connects to the first target that accepts.
func (p *Proxy) dial(from net.Conn) (to net.Conn, err error) {
	p.mutex.Lock()
	targets := p.targets
	p.mutex.Unlock()
	caller, _, err := net.SplitHostPort(from.RemoteAddr().String())
	if err != nil {
		return nil, err
	}
	err = net.ErrClosed
	for _, target := range targets {
		if to, err = DialFrom(caller)(context.Background(), "tcp", target); err == nil {
			return to, nil
		}
	}
	return nil, err
}

// hold registers a connection, so that it can be closed, and reports whether it may stay open.
func (p *Proxy) hold(connection net.Conn) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.connections[connection] = true
	return p.state != Cut
}

func (p *Proxy) release(connection net.Conn) {
	_ = connection.Close()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.connections, connection)
}

// copy copies what may pass.
func (p *Proxy) copy(from, to net.Conn, passes func() bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !passes() {
			return
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// passes waits while the proxy is a black hole and reports whether it is open.
func (p *Proxy) passes() bool {
	for {
		p.mutex.Lock()
		state, changed := p.state, p.changed
		p.mutex.Unlock()
		if state != BlackHole {
			return state != Cut
		}
		<-changed
	}
}

// answers waits like passes, and while the proxy is mute. An answer during that time is lost, and its connection
// with it.
func (p *Proxy) answers() bool {
	lost := false
	for {
		p.mutex.Lock()
		state, changed := p.state, p.changed
		p.mutex.Unlock()
		switch state {
		case Open:
			return !lost
		case Cut:
			return false
		case Mute:
			lost = true
		case BlackHole:
		}
		<-changed
	}
}

// DialFrom dials from one of this machine's addresses.
func DialFrom(address string) func(ctx context.Context, network, target string) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return dialer.DialContext
}
