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

// process is one process of a program. It ends on request, or at one of its writes, which reaches
// the API server or does not. Afterwards it changes nothing in the API server, and clients do not
// receive its answers. It still reads, because a manager that starts returns only after its caches
// have synced: https://github.com/kubernetes-sigs/controller-runtime/blob/v0.25.2/pkg/manager/runnable_group.go#L179
type process struct {
	// cut stops answers to clients.
	cut func()
	// stop ends the process's goroutines.
	stop func()

	mutex sync.Mutex
	// left is the number of remaining writes; negative if unlimited.
	left int
	// reaches reports whether the last write reaches the API server.
	reaches bool
	over    bool
	// terminating is set when the process must stop after its requests in flight.
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

// terminate requests the process to stop, as a rolling update does.
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

// isExpected reports whether the test ended the process.
func (l *process) isExpected() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.over || l.terminating
}

// isLast counts a write. It reports whether the write is the last one and whether it reaches the
// API server.
func (l *process) isLast() (last, reaches bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.left > 0 {
		l.left--
	}
	return l.left == 0, l.reaches
}

// wrap returns a transport that belongs to the process.
func (l *process) wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{process: l, next: next}
}

type transport struct {
	process *process
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		return t.next.RoundTrip(request)
	}
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

// lastWrite does the last write, or drops it, and ends the process before it receives the result.
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

// isWrite reports whether a request other than GET changes the objects of a job. Events and reviews
// do not.
func isWrite(request *http.Request) bool {
	for _, other := range []string{"/events", "/leases", "/tokenreviews", "/subjectaccessreviews"} {
		if strings.Contains(request.URL.Path, other) {
			return false
		}
	}
	return true
}
