// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"net"
	"net/http"
	"sync"
)

// Limits bound the number of concurrent connections.
type Limits struct {
	// PerAddress bounds the connections of one source address. An API server opens one for each concurrent
	// request.
	PerAddress int
	// Clients returns how many known clients share an address. Each adds a connection to PerAddress. It is asked only at
	// that bound; nil for none.
	Clients func(address string) int
	// Total bounds the connections of all addresses. Beyond it, a new connection displaces one from the
	// address with the most unanswered connections. Unknown clients that only keep connections open
	// therefore do not displace an API server. If there is no such connection, the address with the most
	// connections loses one of its own.
	Total int
	// Refused is called for each connection that is closed because of a limit; nil for none.
	Refused func()
}

// Listen returns a listener that immediately closes connections beyond the limits.
func Listen(listener net.Listener, limits Limits) net.Listener {
	if limits.Refused == nil {
		limits.Refused = func() {}
	}
	if limits.Clients == nil {
		limits.Clients = func(string) int { return 0 }
	}
	return &limited{Listener: listener, limits: limits, open: map[string]map[*counted]struct{}{}}
}

type limited struct {
	net.Listener
	limits Limits

	// mutex guards the fields below. open contains the connections by source address.
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
		// The client sees that the connection is closed. No answer is due.
		_ = conn.Close()
	}
}

// admit counts a connection. It returns nil if the connection is beyond the limits.
func (l *limited) admit(conn net.Conn) net.Conn {
	address := Host(conn.RemoteAddr().String())
	l.mutex.Lock()
	own := l.open[address]
	if len(own) >= l.limits.PerAddress && len(own) >= l.limits.PerAddress+l.limits.Clients(address) {
		l.mutex.Unlock()
		return nil
	}
	var dropped *counted
	if l.total >= l.limits.Total {
		if dropped = l.ofGreediest(own); dropped == nil {
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

// ofGreediest returns a connection to displace in favor of an address with the connections own; nil if there
// is none. An address with more unanswered than answered connections never displaces an answered connection.
func (l *limited) ofGreediest(own map[*counted]struct{}) *counted {
	for conn := range greediest(l.open, unanswered(own), unanswered) {
		if !conn.answered {
			return conn
		}
	}
	if unanswered(own) > 0 {
		return nil
	}
	for conn := range greediest(l.open, len(own), func(open map[*counted]struct{}) int { return len(open) }) {
		return conn
	}
	return nil
}

// greediest returns the connections of the address with the highest count. It returns nil if no count
// exceeds most.
func greediest(all map[string]map[*counted]struct{}, most int, count func(map[*counted]struct{}) int) map[*counted]struct{} {
	var found map[*counted]struct{}
	for _, open := range all {
		if counted := count(open); counted > most {
			found, most = open, counted
		}
	}
	return found
}

// unanswered counts the connections without an answer, minus those with an answer. An address that
// receives answers may therefore open more connections.
func unanswered(open map[*counted]struct{}) int {
	count := 0
	for conn := range open {
		if conn.answered {
			count--
		} else {
			count++
		}
	}
	return count
}

// Answered marks a connection of a listener after its first answer. It is the ConnState of an http.Server.
func Answered(conn net.Conn, state http.ConnState) {
	if state != http.StateIdle {
		return
	}
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn()
	}
	if conn, ok := conn.(*counted); ok {
		conn.of.mutex.Lock()
		conn.answered = true
		conn.of.mutex.Unlock()
	}
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

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	of      *limited
	address string
	// answered is set after the first answer on the connection.
	answered bool
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
