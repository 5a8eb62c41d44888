// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// arrivals is a listener of connections from made-up addresses.
type arrivals struct {
	net.Listener
	conns chan net.Conn
}

func (a *arrivals) Accept() (net.Conn, error) {
	conn, open := <-a.conns
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

type arrival struct {
	net.Conn
	from   string
	closed bool
}

func (a *arrival) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.from), Port: 1} }
func (a *arrival) Close() error         { a.closed = true; return nil }

// accept simulates arriving connections and returns the accepted ones.
func accept(t *testing.T, limits Limits, conns ...net.Conn) []net.Conn {
	t.Helper()
	listener := &arrivals{conns: make(chan net.Conn, len(conns))}
	for _, conn := range conns {
		listener.conns <- conn
	}
	close(listener.conns)
	limited := Listen(listener, limits)
	var accepted []net.Conn
	for {
		conn, err := limited.Accept()
		if err != nil {
			return accepted
		}
		accepted = append(accepted, conn)
	}
}

func arrivalsFrom(address string, count int) (all []net.Conn) {
	for range count {
		all = append(all, &arrival{from: address})
	}
	return all
}

func TestAnAddressHasNoMoreConnectionsThanItMay(t *testing.T) {
	refused := 0
	limits := Limits{PerAddress: 3, Total: 10, Refused: func() { refused++ }}
	accepted := accept(t, limits, append(arrivalsFrom("10.0.0.1", 5), arrivalsFrom("10.0.0.2", 2)...)...)
	if len(accepted) != 5 || refused != 2 {
		t.Errorf("%d are accepted and %d refused, want 5 and 2", len(accepted), refused)
	}
}

func TestEachClientThatSharesAnAddressMayHaveOneMoreConnection(t *testing.T) {
	shared := func(address string) int { return map[string]int{"10.0.0.1": 4}[address] }
	limits := Limits{PerAddress: 3, Total: 20, Clients: shared}
	accepted := accept(t, limits, append(arrivalsFrom("10.0.0.1", 9), arrivalsFrom("10.0.0.2", 5)...)...)
	if len(accepted) != 7+3 {
		t.Errorf("%d are accepted, want 10", len(accepted))
	}
}

func TestWhoeverHasMostConnectionsLosesOneToOthers(t *testing.T) {
	greedy := arrivalsFrom("10.0.0.1", 4)
	other := arrivalsFrom("10.0.0.2", 3)
	accepted := accept(t, Limits{PerAddress: 4, Total: 4}, append(greedy, other...)...)
	closed := map[bool]int{}
	for _, conn := range greedy {
		//nolint:errcheck // It is one.
		closed[conn.(*arrival).closed]++
	}
	// No address displaces another's connection beyond equal shares.
	if len(accepted) != 6 || closed[true] != 2 {
		t.Errorf("%d are accepted, %d of the greedy address closed, want 6 and 2", len(accepted), closed[true])
	}
}

func TestAClosedConnectionMakesRoom(t *testing.T) {
	listener := &arrivals{conns: make(chan net.Conn, 1)}
	limited := Listen(listener, Limits{PerAddress: 1, Total: 1})
	for range 3 {
		listener.conns <- &arrival{from: "10.0.0.1"}
		conn, err := limited.Accept()
		expect.NoError(t, err)
		for range 2 {
			expect.NoError(t, conn.Close())
		}
	}
	close(listener.conns)
	if _, err := limited.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the end of the listener is %v", err)
	}
}

// wrapped is a connection as TLS wraps it.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

func TestConnectionsOnWhichSomethingIsAnsweredOutlastThoseOfStrangers(t *testing.T) {
	listener := &arrivals{conns: make(chan net.Conn, 20)}
	limited := Listen(listener, Limits{PerAddress: 8, Total: 8})
	answered := arrivalsFrom("10.0.0.1", 4)
	for _, conn := range answered {
		listener.conns <- conn
		accepted, err := limited.Accept()
		expect.NoError(t, err)
		Answered(wrapped{accepted}, http.StateActive)
		Answered(wrapped{accepted}, http.StateIdle)
	}
	// Each of many unknown clients has fewer connections than the one that gets answers.
	for i := range 12 {
		listener.conns <- &arrival{from: fmt.Sprintf("10.0.1.%d", i%6)}
	}
	more := &arrival{from: "10.0.0.1"}
	listener.conns <- more
	close(listener.conns)
	var last net.Conn
	for {
		conn, err := limited.Accept()
		if err != nil {
			break
		}
		last = conn
	}
	for i, conn := range answered {
		//nolint:errcheck // It is one.
		if conn.(*arrival).closed {
			t.Errorf("connection %d gives way to a stranger", i)
		}
	}
	if last == nil || last.RemoteAddr().String() != more.RemoteAddr().String() || more.closed {
		t.Error("who is answered opens no more connections")
	}
}
