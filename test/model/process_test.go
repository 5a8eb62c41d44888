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

// process is one process of a program. It ends on request, or at one of its writes,
// which has reached the API server or not. After that each of its requests to the API
// server fails, and its answers do not reach clients.
type process struct {
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
	// terminating is set when the process must stop after it has finished its requests.
	terminating bool
}

func newProcess(cut, stop func()) *process {
	return &process{cut: cut, stop: stop, left: -1}
}

// endAt plans the end of the process at its n-th write from now, counted from 1.
func (l *process) endAt(n int, reaches bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.left, l.reaches = n, reaches
}

// end ends the process at once.
func (l *process) end() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.over {
		return
	}
	l.cut()
	l.over = true
	l.stop()
}

// terminate asks the process to stop as a rolling update does.
func (l *process) terminate() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.terminating = true
	l.stop()
}

func (l *process) isOver() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.over
}

// isExpected reports whether the process was to end.
func (l *process) isExpected() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.over || l.terminating
}

// isLast counts a write, and reports whether it is the last one and whether it
// reaches the API server.
func (l *process) isLast() (last, reaches bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.left > 0 {
		l.left--
	}
	return l.left == 0, l.reaches
}

// wrap makes a transport one of the process.
func (l *process) wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{process: l, next: next}
}

type transport struct {
	process *process
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.process.isOver() {
		return nil, discard(request)
	}
	if isWrite(request) {
		if last, reaches := t.process.isLast(); last {
			return nil, t.lastWrite(request, reaches)
		}
	}
	response, err := t.next.RoundTrip(request)
	if t.process.isOver() {
		return nil, errors.Join(errEnded, closeBody(response))
	}
	return response, err
}

// lastWrite does the last write, or not, and ends the process before it knows
// what came of it.
func (t *transport) lastWrite(request *http.Request, reaches bool) error {
	if !reaches {
		t.process.end()
		return discard(request)
	}
	response, err := t.next.RoundTrip(request)
	t.process.end()
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
