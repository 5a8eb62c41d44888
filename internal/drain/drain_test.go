// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/internal/drain"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const delay = 6 * time.Second

// hall is a listener with connections inside the process.
type hall struct {
	arriving chan net.Conn
	closed   chan struct{}
}

func (h *hall) Accept() (net.Conn, error) {
	select {
	case connection := <-h.arriving:
		return connection, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *hall) Close() error   { close(h.closed); return nil }
func (h *hall) Addr() net.Addr { return &net.TCPAddr{} }

// served is a server that shuts down on request.
type served struct {
	client *http.Client
	// dials counts the connections that were opened.
	dials int
	leave context.CancelFunc
	left  chan error
}

func serve(t *testing.T, d *drain.Drain, handler http.HandlerFunc) *served {
	t.Helper()
	h := &hall{arriving: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: d.Handler(handler), ReadHeaderTimeout: time.Hour}
	ctx, leave := context.WithCancel(t.Context())
	s := &served{leave: leave, left: make(chan error, 1)}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case h.arriving <- theirs:
			s.dials++
			return ours, nil
		case <-h.closed:
			return nil, errors.New("connection refused")
		}
	}}
	s.client = &http.Client{Transport: transport}
	go server.Serve(h) //nolint:errcheck // it ends by being closed
	go func() {
		<-ctx.Done()
		s.left <- d.Shutdown(ctx, server)
	}()
	t.Cleanup(transport.CloseIdleConnections)
	return s
}

// get makes a call and reports whether its connection was closed with the answer.
func (s *served) get(t *testing.T) (closed bool, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/", http.NoBody)
	expect.NoError(t, err)
	response, err := s.client.Do(request)
	if err != nil {
		return false, err
	}
	return response.Close, response.Body.Close()
}

func TestAServerThatLeavesTakesCallsForItsDelayAndKeepsNoConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, &drain.Drain{Delay: delay, Finish: time.Minute}, func(http.ResponseWriter, *http.Request) {})
		for range 3 {
			if closed, err := s.get(t); closed || err != nil {
				t.Fatalf("before: closed %v, %v", closed, err)
			}
		}
		if s.dials != 1 {
			t.Errorf("%d connections before, want one that is kept", s.dials)
		}
		s.leave()
		synctest.Wait()
		<-time.After(delay - 1) // of the bubble's clock
		for range 3 {
			if closed, err := s.get(t); !closed || err != nil {
				t.Errorf("while it leaves: closed %v, %v, want an answer that closes", closed, err)
			}
		}
		if s.dials != 3 {
			t.Errorf("%d connections, want the one that was kept and two more", s.dials)
		}
		if err := <-s.left; err != nil {
			t.Error(err)
		}
		if _, err := s.get(t); err == nil {
			t.Error("it was answered after it had left")
		}
	})
}

func TestWhatWasTakenIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, &drain.Drain{Delay: delay, Finish: time.Minute}, func(http.ResponseWriter, *http.Request) {
			<-time.After(2 * delay) // of the bubble's clock
		})
		answered := make(chan error, 1)
		go func() {
			_, err := s.get(t)
			answered <- err
		}()
		synctest.Wait()
		s.leave()
		if err := <-s.left; err != nil {
			t.Error(err)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatTakesTooLongIsToldOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, &drain.Drain{Delay: delay, Finish: time.Second}, func(http.ResponseWriter, *http.Request) {
			<-time.After(time.Hour) // of the bubble's clock
		})
		answered := make(chan error, 1)
		go func() {
			_, err := s.get(t)
			answered <- err
		}()
		synctest.Wait()
		s.leave()
		if err := <-s.left; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that it took too long", err)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}
