// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	// Readiness probes are as installed: one failure is enough.
	probePeriod  = 2 * time.Second
	probeTimeout = time.Second
	// endpointDelay is the time until connections follow the result of a probe.
	endpointDelay = time.Second
)

// endpoint is a destination of connections.
type endpoint struct {
	address string
	ready   bool
}

// endpoints choose the destination of a connection from the ready endpoints, in turn.
type endpoints struct {
	// affinity keeps a caller at the same endpoint while that is ready.
	affinity bool

	all  []endpoint
	turn int
	kept map[string]string
}

// set sets whether an endpoint, possibly a new one, is ready.
func (e *endpoints) set(address string, ready bool) {
	i := slices.IndexFunc(e.all, func(one endpoint) bool { return one.address == address })
	if i < 0 {
		e.all = append(e.all, endpoint{address: address, ready: ready})
		return
	}
	e.all[i].ready = ready
}

func (e *endpoints) remove(address string) {
	e.all = slices.DeleteFunc(e.all, func(one endpoint) bool { return one.address == address })
}

func (e *endpoints) isReady(address string) bool {
	return slices.Contains(e.all, endpoint{address: address, ready: true})
}

// choose returns the destination for a connection of a caller; empty if no endpoint is ready.
func (e *endpoints) choose(caller string) string {
	if kept := e.kept[caller]; e.affinity && e.isReady(kept) {
		return kept
	}
	for range e.all {
		e.turn = (e.turn + 1) % len(e.all)
		if one := e.all[e.turn]; one.ready {
			if e.kept == nil {
				e.kept = map[string]string{}
			}
			e.kept[caller] = one.address
			return one.address
		}
	}
	return ""
}

// service simulates a Service and the kubelet that probes its endpoints. It routes new connections
// to processes that are ready, and keeps existing ones.
type service struct {
	listener net.Listener
	running  context.Context //nolint:containedctx // what runs until the service is closed
	cancel   context.CancelFunc
	ended    sync.WaitGroup

	mutex     sync.Mutex
	endpoints endpoints
}

// startService starts a service without endpoints. The caller closes it.
func startService(ctx context.Context, affinity bool) (*service, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a service: %w", err)
	}
	s := &service{listener: listener, endpoints: endpoints{affinity: affinity}}
	s.running, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.ended.Go(s.accept)
	return s, nil
}

func (s *service) address() string {
	return s.listener.Addr().String()
}

func (s *service) close() error {
	s.cancel()
	err := s.listener.Close()
	s.ended.Wait()
	return err
}

// follow routes connections to a process while it is ready. The caller calls the returned function
// when the process has exited.
func (s *service) follow(process *program.Process) (forget func()) {
	ctx, cancel := context.WithCancel(s.running)
	s.ended.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			ready := isReady(ctx, process)
			if pace.Pause(ctx, endpointDelay) != nil {
				return
			}
			s.mutex.Lock()
			if ctx.Err() == nil {
				s.endpoints.set(process.Address, ready)
			}
			s.mutex.Unlock()
			_ = pace.Pause(ctx, time.Until(began.Add(probePeriod)))
		}
	})
	return func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		cancel()
		s.endpoints.remove(process.Address)
	}
}

func isReady(ctx context.Context, process *program.Process) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return process.Ready(ctx) == nil
}

// leadsTo reports whether connections may be routed to a process.
func (s *service) leadsTo(process *program.Process) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.endpoints.isReady(process.Address)
}

func (s *service) accept() {
	for {
		connection, err := s.listener.Accept()
		if err != nil {
			return
		}
		if from, ok := connection.(*net.TCPConn); ok {
			s.ended.Go(func() { s.carry(from) })
		}
	}
}

// carry forwards one connection until both sides have closed it.
func (s *service) carry(from *net.TCPConn) {
	defer func() { _ = from.Close() }()
	to, err := s.dial(from)
	if err != nil {
		// It resets the connection, as if there were no listener.
		_ = from.SetLinger(0)
		return
	}
	defer func() { _ = to.Close() }()
	stop := context.AfterFunc(s.running, func() { _ = errors.Join(from.Close(), to.Close()) })
	defer stop()
	var ways sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{from, to}, {to, from}} {
		ways.Go(func() { pump(way[0], way[1]) })
	}
	ways.Wait()
}

// pump forwards one direction and its end, either a regular close or a reset.
func pump(from, to *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.SetLinger(0)
		_ = errors.Join(to.Close(), from.Close())
		return
	}
	_ = to.CloseWrite()
}

var errNothingReady = errors.New("nothing behind the service is ready")

// dial opens the connection to an endpoint from the caller's own address, which identifies the
// caller.
func (s *service) dial(from net.Conn) (*net.TCPConn, error) {
	caller, _, err := net.SplitHostPort(from.RemoteAddr().String())
	if err != nil {
		return nil, fmt.Errorf("caller: %w", err)
	}
	s.mutex.Lock()
	address := s.endpoints.choose(caller)
	s.mutex.Unlock()
	if address == "" {
		return nil, errNothingReady
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(caller)}}
	connection, err := dialer.DialContext(s.running, "tcp", address)
	if err != nil {
		return nil, err
	}
	to, ok := connection.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("a connection over TCP is a %T", connection)
	}
	return to, nil
}
