// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener without a network. Its connections run in the time of a synctest bubble.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.connections:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// pipe is the server's end of a connection from an address.
type pipe struct {
	net.Conn
	from net.IP
}

func (p *pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: p.from, Port: 1} }

// served serves HTTP without a network. It returns a function that connects from an address.
func served(t *testing.T, server *Server) func(lastByte byte) net.Conn {
	t.Helper()
	listener := &pipes{make(chan net.Conn), make(chan struct{})}
	serving := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: headTime}
	ended := make(chan error, 1)
	go func() { ended <- serving.Serve(listener) }()
	t.Cleanup(func() {
		_ = serving.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		// The server closes connections after half a second.
		_ = passed(context.WithoutCancel(t.Context()), time.Second)
	})
	return func(lastByte byte) net.Conn {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		listener.connections <- &pipe{server, net.IPv4(10, 0, 0, lastByte)}
		return client
	}
}

// sent sends the head of a report and a part of its body. It returns the beginning of the answer, and
// closes with the connection.
func sent(t *testing.T, connection net.Conn, announced int, content string) <-chan string {
	t.Helper()
	answered := make(chan string, 1)
	go func() {
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		answered <- fmt.Sprintf("%d %s %v", response.StatusCode, body, err)
	}()
	_, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: di-server\r\nContent-Length: %d\r\n\r\n%s", replicasPath+"/failed", announced, content)
	if err != nil {
		t.Error(err)
	}
	return answered
}

const later = `200 {"success":false,`

// mustAnswer expects the beginning of an answer and returns how long the answer took.
func mustAnswer(t *testing.T, answered <-chan string, want string) time.Duration {
	t.Helper()
	begun := time.Now()
	if got := <-answered; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	return time.Since(begun)
}

func TestABodyTakesNoRoomForWhatItAnnouncesAndDoesNotSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connect := served(t, newMemoryServer(t, newMemory(t)))
		for range 40 {
			sent(t, connect(1), maxBody, "{")
		}
		synctest.Wait()
		if took := mustAnswer(t, sent(t, connect(1), 2, "{}"), "400 "); took > 0 {
			t.Errorf("a body waits for %s beside others that do not come", took)
		}
	})
}

func TestBodiesThatComeSlowlyLoseTheirRoomToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connect := served(t, newMemoryServer(t, newMemory(t)))
		var slow []<-chan string
		for range maxOwnBodies / maxBody {
			slow = append(slow, sent(t, connect(1), maxBody, strings.Repeat(" ", maxBody/3)))
		}
		synctest.Wait()
		if took := mustAnswer(t, sent(t, connect(2), 2, "{}"), "400 "); took > 0 {
			t.Errorf("another sender's body waits for %s", took)
		}
		if took := mustAnswer(t, sent(t, connect(1), 2, "{}"), "400 "); took > bodyPatience {
			t.Errorf("the same sender's body waits for %s", took)
		}
		for _, answered := range slow {
			mustAnswer(t, answered, later)
		}
	})
}

func TestABodyThatComesTooSlowlyIsToComeAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bytes int
		every time.Duration
		least time.Duration
		most  time.Duration
	}{
		"nothing comes":                          {0, time.Hour, 5 * time.Second, 5 * time.Second},
		"a byte comes each second":               {1, time.Second, 5 * time.Second, 6 * time.Second},
		"it comes at half the pace that it must": {bodyBytesPerSecond / 20, 100 * time.Millisecond, 9 * time.Second, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				connection := served(t, newMemoryServer(t, newMemory(t)))(1)
				answered, begun := sent(t, connection, maxBody, "{"), time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					for passed(ctx, tc.every) == nil {
						if _, err := io.WriteString(connection, strings.Repeat(" ", tc.bytes)); err != nil {
							return
						}
					}
				}()
				mustAnswer(t, answered, later)
				if took := time.Since(begun); took < tc.least || took > tc.most {
					t.Errorf("it is answered after %s, want %s to %s", took, tc.least, tc.most)
				}
			})
		})
	}
}

func TestARequestHasAllOfItsTimeOnceItsBodyHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		job := store.newCoordinatorLed(t)
		connection := served(t, newMemoryServer(t, store))(1)
		store.set(true)
		body := fmt.Sprintf(`{"namespace":%q,"coordinator":"job-coordinator"}`, job.Namespace)
		answered := sent(t, connection, len(body), body)
		mustPass(t, 4*DefaultTimes().Body)
		store.set(false)
		if took := mustAnswer(t, answered, `200 {"success":true,`); took > 2*time.Second {
			t.Errorf("it is answered %s after the API server is back", took)
		}
	})
}
