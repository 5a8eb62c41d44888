// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// state is what becomes of what a link is given to carry.
type state string

const (
	// open carries everything.
	open state = "open"
	// cut closes every connection, those that are open and those that come.
	cut state = "cut"
	// blackHole carries nothing and tells nobody; what it was given comes when
	// it is open again, as TCP sends it again.
	blackHole state = "black hole"
)

// link is the way to the API server, which tests break and mend.
type link struct {
	listener net.Listener

	lock  sync.Mutex
	to    string
	state state
	// changed is closed when the state changes.
	changed     chan struct{}
	connections map[net.Conn]bool
}

// newLink returns an open way to an address, as long as the spec runs.
func newLink(ctx context.Context, to string) *link {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	l := &link{listener: listener, to: to, state: open, changed: make(chan struct{}), connections: map[net.Conn]bool{}}
	go l.accept()
	DeferCleanup(func() {
		l.set(cut)
		Expect(listener.Close()).To(Succeed())
	})
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) set(state state) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.state = state
	close(l.changed)
	l.changed = make(chan struct{})
	if state == cut {
		for connection := range l.connections {
			_ = connection.Close()
		}
	}
}

// lead lets connections that come lead to another address, as a Service does
// when another pod is ready.
func (l *link) lead(to string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.to = to
}

func (l *link) target() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.to
}

func (l *link) now() (state, <-chan struct{}) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.state, l.changed
}

func (l *link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(from)
	}
}

// carry carries one connection in both directions until either side ends it.
func (l *link) carry(from net.Conn) {
	defer func() { _ = from.Close() }()
	if !l.hold(from) || l.passable() != nil {
		return
	}
	// Callers are told by their addresses.
	caller, _, err := net.SplitHostPort(from.RemoteAddr().String())
	if err != nil {
		return
	}
	to, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(caller)}}).Dial("tcp", l.target())
	if err != nil || !l.hold(to) {
		return
	}
	defer func() { _ = to.Close() }()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			l.pump(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.connections, from)
	delete(l.connections, to)
}

// hold remembers a connection, to close it; false where it must not be there.
func (l *link) hold(connection net.Conn) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.connections[connection] = true
	return l.state != cut
}

func (l *link) pump(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if l.passable() != nil {
			return
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

var errCut = errors.New("the link is cut")

// passable returns when the link carries, or that it is cut.
func (l *link) passable() error {
	for {
		state, changed := l.now()
		switch state {
		case open:
			return nil
		case cut:
			return errCut
		case blackHole:
			<-changed
		}
	}
}
