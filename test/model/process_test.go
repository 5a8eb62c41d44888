// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"net/http"
	"strings"
	"sync"
)

var errEnded = errors.New("the process has ended")

// life is that of one process: it ends when it is told to, or at one of its
// writes, which then has reached the API server or not. A process whose life
// has ended can do nothing more: all that it asks of the API server fails, and
// what it answers to clients does not arrive.
type life struct {
	// cut keeps answers from clients.
	cut func()
	// stop lets the process's goroutines end.
	stop func()

	mutex sync.Mutex
	// left is how many writes are left; negative where none is the last.
	left int
	// reaches reports whether the last write reaches the API server.
	reaches bool
	over    bool
	// retired is set when the process was told to stop and finish what it has begun.
	retired bool
}

func newLife(cut, stop func()) *life {
	return &life{cut: cut, stop: stop, left: -1}
}

// endAt plans the end of the process at its n-th write from now, counted from 1.
func (l *life) endAt(n int, reaches bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.left, l.reaches = n, reaches
}

// end ends the process at once.
func (l *life) end() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.over {
		return
	}
	l.cut()
	l.over = true
	l.stop()
}

// retire asks the process to stop as a rolling update does.
func (l *life) retire() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.retired = true
	l.stop()
}

func (l *life) isOver() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.over
}

// isExpected reports whether the process was to end.
func (l *life) isExpected() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.over || l.retired
}

// isLast counts a write, and reports whether it is the last one and whether it
// reaches the API server.
func (l *life) isLast() (last, reaches bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.left > 0 {
		l.left--
	}
	return l.left == 0, l.reaches
}

// wrap makes a transport one of the process.
func (l *life) wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{life: l, next: next}
}

type transport struct {
	life *life
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.life.isOver() {
		return nil, discard(request)
	}
	if isWrite(request) {
		if last, reaches := t.life.isLast(); last {
			return nil, t.breathe(request, reaches)
		}
	}
	response, err := t.next.RoundTrip(request)
	if t.life.isOver() {
		return nil, errors.Join(errEnded, closeBody(response))
	}
	return response, err
}

// breathe does the last write, or not, and ends the process before it knows
// what came of it.
func (t *transport) breathe(request *http.Request, reaches bool) error {
	if !reaches {
		t.life.end()
		return discard(request)
	}
	response, err := t.next.RoundTrip(request)
	t.life.end()
	return errors.Join(errEnded, err, closeBody(response))
}

func discard(request *http.Request) error {
	if request.Body == nil {
		return errEnded
	}
	return errors.Join(errEnded, request.Body.Close())
}

func closeBody(response *http.Response) error {
	if response == nil {
		return nil
	}
	return response.Body.Close()
}

// isWrite reports whether a request changes what a job has. Events only tell of
// it, and reviews only ask.
func isWrite(request *http.Request) bool {
	if request.Method == http.MethodGet || request.Method == http.MethodHead {
		return false
	}
	for _, other := range []string{"/events", "/leases", "/tokenreviews", "/subjectaccessreviews"} {
		if strings.Contains(request.URL.Path, other) {
			return false
		}
	}
	return true
}
