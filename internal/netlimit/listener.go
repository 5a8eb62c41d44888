// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"net"
	"sync"
)

// Limits are how many connections are open at a time.
type Limits struct {
	// PerAddress bounds those of one source address. An API server has one for
	// each request that it waits for.
	PerAddress int
	// Total bounds those of all addresses. Beyond it, the address with the most
	// loses one of its own.
	Total int
	// Refused is told of each connection that is closed for a limit; nobody by
	// default.
	Refused func()
}

// Listen returns a listener that closes connections beyond the limits at once.
func Listen(listener net.Listener, limits Limits) net.Listener {
	if limits.Refused == nil {
		limits.Refused = func() {}
	}
	return &limited{Listener: listener, limits: limits, open: map[string]map[*counted]struct{}{}}
}

type limited struct {
	net.Listener
	limits Limits

	// mutex protects the connections, by source address.
	mutex sync.Mutex
	open  map[string]map[*counted]struct{}
	total int
}

// Accept returns the next connection that is within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if accepted := l.admit(conn); accepted != nil {
			return accepted, nil
		}
		l.limits.Refused()
		// Whoever opened it sees that it is closed, and nothing more is owed.
		_ = conn.Close()
	}
}

// admit counts a connection, nil where it is beyond the limits.
func (l *limited) admit(conn net.Conn) net.Conn {
	address := Host(conn.RemoteAddr().String())
	l.mutex.Lock()
	own := l.open[address]
	if len(own) >= l.limits.PerAddress {
		l.mutex.Unlock()
		return nil
	}
	var dropped *counted
	if l.total >= l.limits.Total {
		if dropped = l.ofGreediest(len(own)); dropped == nil {
			l.mutex.Unlock()
			return nil
		}
		l.remove(dropped)
	}
	if own = l.open[address]; own == nil {
		own = map[*counted]struct{}{}
		l.open[address] = own
	}
	accepted := &counted{Conn: conn, of: l, address: address}
	own[accepted] = struct{}{}
	l.total++
	l.mutex.Unlock()
	if dropped != nil {
		l.limits.Refused()
		_ = dropped.Conn.Close()
	}
	return accepted
}

// ofGreediest returns a connection of the address that has the most, nil where
// none has more than so many.
func (l *limited) ofGreediest(most int) *counted {
	var greediest map[*counted]struct{}
	for _, open := range l.open {
		if len(open) > most {
			greediest, most = open, len(open)
		}
	}
	for one := range greediest {
		return one
	}
	return nil
}

func (l *limited) remove(conn *counted) {
	own := l.open[conn.address]
	if _, open := own[conn]; !open {
		return
	}
	l.total--
	delete(own, conn)
	if len(own) == 0 {
		delete(l.open, conn.address)
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	of      *limited
	address string
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.of.mutex.Lock()
	c.of.remove(c)
	c.of.mutex.Unlock()
	return c.Conn.Close()
}

// Host returns the address of a sender without its port.
func Host(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}
