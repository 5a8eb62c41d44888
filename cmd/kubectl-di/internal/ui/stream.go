// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
)

const (
	// heartbeat is how often a silent stream sends a comment.
	heartbeat = 15 * time.Second
	// slowest is how long a browser may take to read an event.
	slowest = 30 * time.Second
)

// sender writes the events of a stream. An event that equals the one before is not sent.
type sender struct {
	out     http.ResponseWriter
	control *http.ResponseController
	last    map[string][]byte
}

// streaming sends the events of a stream until its context ends.
type streaming func(ctx context.Context, r *http.Request, to *sender) error

// stream returns a handler of a stream. An error before the first event is a plain answer.
func (s *Server) stream(handle streaming) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.streams <- struct{}{}:
			defer func() { <-s.streams }()
		default:
			gate.Fail(w, gate.Refuse(http.StatusTooManyRequests, "TooManyRequests", fmt.Sprintf("%d streams are open: close a page", mostStreams)))
			return
		}
		ctx, stop := context.WithCancel(r.Context())
		defer stop()
		to := &sender{out: w, control: http.NewResponseController(w), last: map[string][]byte{}}
		// The server's deadline for reading ends no stream.
		_ = to.control.SetReadDeadline(time.Time{})
		err := handle(ctx, r, to)
		switch {
		case err == nil || ctx.Err() != nil:
		case to.isBegun():
			_ = to.fail(err)
		default:
			gate.Fail(w, err)
		}
	}
}

func (t *sender) isBegun() bool { return t.out.Header().Get("Content-Type") == "text/event-stream" }

func (t *sender) begin() {
	if !t.isBegun() {
		header := t.out.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-store")
		header.Set("X-Accel-Buffering", "no")
		t.out.WriteHeader(http.StatusOK)
	}
}

// send sends an event whose data differs from the last of its name.
func (t *sender) send(name string, value any) error {
	return t.sendAs(name, value, value)
}

// sendAs compares a value with the last of its name, and sends the full one if it differs.
func (t *sender) sendAs(name string, compared, full any) error {
	data, err := json.Marshal(compared)
	if err != nil || bytes.Equal(data, t.last[name]) {
		return err
	}
	t.last[name] = data
	return t.append(name, full)
}

// append sends an event.
func (t *sender) append(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return t.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data))
}

// fail sends an error.
func (t *sender) fail(err error) error {
	_, body := gate.Describe(err)
	return t.send("failed", body)
}

// beat sends a comment.
func (t *sender) beat() error { return t.write([]byte(": alive\n\n")) }

func (t *sender) write(text []byte) error {
	t.begin()
	// Not every writer has a deadline.
	_ = t.control.SetWriteDeadline(time.Now().Add(slowest))
	if _, err := t.out.Write(text); err != nil {
		return err
	}
	return t.control.Flush()
}

// watching is what the watches of a page change.
type watching interface {
	change(watch int, change cluster.Change)
	// stopped is called for a watch that ended, such as for a denied right.
	stopped(watch int, err error)
}

// show sends what a page shows now.
type show func() error

// follow runs watches, and calls show when all have their first objects, and then after changes,
// at most once in each pause. It calls beat in between. It ends with the context, or with an error of
// both.
func (s *Server) follow(ctx context.Context, watched []cluster.Watched, to watching, pause time.Duration, show, beat show) error {
	ctx, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	updates := make(chan func())
	send := func(update func()) {
		select {
		case updates <- update:
		case <-ctx.Done():
		}
	}
	missing, complete := len(watched), make([]bool, len(watched))
	completed := func(watch int) {
		if !complete[watch] {
			complete[watch] = true
			missing--
		}
	}
	for at, one := range watched {
		working.Go(func() {
			err := s.Cluster.Observe(ctx, one, func(change cluster.Change) {
				send(func() {
					to.change(at, change)
					if change.Complete {
						completed(at)
					}
				})
			})
			if err != nil {
				send(func() { to.stopped(at, err); completed(at) })
			}
		})
	}
	return s.showChanges(ctx, updates, pause, func() error {
		if missing > 0 {
			return nil
		}
		return show()
	}, beat)
}

// showChanges applies updates, and calls show after them, at most once in each pause.
func (s *Server) showChanges(ctx context.Context, updates <-chan func(), pause time.Duration, show, beat show) error {
	var passed <-chan time.Time
	next := s.Clock.Now()
	beats := s.Clock.NewTicker(heartbeat)
	defer beats.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case update := <-updates:
			update()
			if passed == nil {
				passed = s.Clock.After(max(next.Sub(s.Clock.Now()), time.Millisecond))
			}
		case <-passed:
			passed, next = nil, s.Clock.Now().Add(pause)
			if err := show(); err != nil {
				return err
			}
		case <-beats.C():
			if err := beat(); err != nil {
				return err
			}
		}
	}
}
