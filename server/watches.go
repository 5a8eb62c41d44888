// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/internal/membership"
)

// maxCatchUp bounds how long a watch that is open again is given to tell what
// was missed.
const maxCatchUp = 250 * time.Millisecond

// Watches knows of each resource that answers are made from whether a watch
// keeps the cache current. A cache whose watch is broken stands still, and
// whoever was answered by another server meanwhile would see its list go
// backwards. It sees the watches on their way to the API server, by Wrap; so
// no call is made to find out.
type Watches struct {
	log       logr.Logger
	lock      sync.Mutex
	resources map[string]*watched
	// changed is closed when a watch is opened or ends.
	changed chan struct{}
}

// watched is the state of one resource's watches.
type watched struct {
	open int
	// since is when the first of them was opened, or when the last ended.
	since time.Time
	// missed is how long there was none before.
	missed time.Duration
}

// NewWatches returns what follows the watches of all resources that the
// server answers from; none is open yet. Nodes are not among them: a count of
// GPUs that is usual changes seldom, and goes nowhere back.
func NewWatches(log logr.Logger) *Watches {
	w := &Watches{log: log, resources: map[string]*watched{}, changed: make(chan struct{})}
	for _, resource := range watchedResources() {
		w.resources[resource] = &watched{since: time.Now()}
	}
	return w
}

func watchedResources() []string {
	return []string{"dijobs", "memberships", "aggregatorconfigs", "pods"}
}

// state tells of each resource whether a watch is open. No watches have none.
func (w *Watches) state() map[string]bool {
	open := map[string]bool{}
	if w == nil {
		return open
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	for resource, state := range w.resources {
		open[resource] = state.open > 0
	}
	return open
}

// current reports whether nothing is to be waited for.
func (w *Watches) current() bool {
	if w == nil {
		return true
	}
	pause, _ := w.pause()
	return pause <= 0
}

// broken returns how long a watch is broken by now; 0 where none is. No
// watches at all are never broken.
func (w *Watches) broken() time.Duration {
	if w == nil {
		return 0
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	var longest time.Duration
	for _, state := range w.resources {
		if state.open == 0 {
			longest = max(longest, time.Since(state.since), 1)
		}
	}
	return longest
}

// undisturbed returns when something that happened at a time would have happened
// had the watches not been broken before: the last break does not count, if it
// lasted until then or ended not long before.
func (w *Watches) undisturbed(at time.Time) time.Time {
	if w == nil {
		return at
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	longest := time.Duration(0)
	for _, state := range w.resources {
		begun, ended := state.since.Add(-state.missed), state.since
		if state.open == 0 {
			begun, ended = state.since, at
		}
		if ended.After(at) {
			ended = at
		}
		if at.Sub(ended) <= membership.RepeatWindow {
			longest = max(longest, ended.Sub(begun))
		}
	}
	return at.Add(-longest)
}

// wait returns when all watches are open and have had time to tell what was
// missed while they were not: as long as they were not.
func (w *Watches) wait(ctx context.Context) error {
	if w == nil {
		return nil
	}
	for {
		pause, changed := w.pause()
		if pause == 0 {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return unavailable(fmt.Errorf("a watch is broken: %w", context.Cause(ctx)))
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// pause returns how long to wait before the watches are asked for again, 0
// where there is no need, and what ends the pause before.
func (w *Watches) pause() (time.Duration, <-chan struct{}) {
	w.lock.Lock()
	defer w.lock.Unlock()
	var pause time.Duration
	for _, state := range w.resources {
		if state.open == 0 {
			return time.Minute, w.changed
		}
		pause = max(pause, min(state.missed, maxCatchUp)-time.Since(state.since))
	}
	return pause, w.changed
}

func (w *Watches) opened(resource string) {
	w.change(resource, func(state *watched) {
		if state.open++; state.open == 1 {
			state.missed = time.Since(state.since)
			state.since = time.Now()
		}
	})
}

func (w *Watches) closed(resource string) {
	w.change(resource, func(state *watched) {
		if state.open--; state.open == 0 {
			state.since = time.Now()
		}
	})
}

func (w *Watches) change(resource string, change func(*watched)) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if state, needed := w.resources[resource]; needed {
		change(state)
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// Wrap makes a transport one whose watches are followed; it is given to the
// configuration that the cache is made from.
func (w *Watches) Wrap(next http.RoundTripper) http.RoundTripper {
	return &watchTransport{watches: w, next: next}
}

// watchTransport follows the watches among the requests that it sends.
type watchTransport struct {
	watches *Watches
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *watchTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if watch := query.Get("watch"); request.Method != http.MethodGet || watch != "true" && watch != "1" {
		return t.next.RoundTrip(request)
	}
	response, err := t.patiently(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	response.Body = t.watches.newStream(response.Body, path.Base(request.URL.Path), query.Get("sendInitialEvents") == "true")
	return response, nil
}

// patiently opens a watch, again while that fails for a reason that passes: the
// cache that asks for it would wait up to a minute, and then list everything.
func (t *watchTransport) patiently(request *http.Request) (*http.Response, error) {
	ctx, delay := request.Context(), patience()
	for told := false; ; told = true {
		response, err := t.next.RoundTrip(request)
		if ctx.Err() != nil || err == nil && !isTransient(response.StatusCode) {
			return response, err
		}
		if err == nil {
			err = errors.Join(errors.New(response.Status), response.Body.Close())
		}
		if !told {
			t.watches.log.Info("Cannot open a watch; retrying", "path", request.URL.Path, "reason", err.Error())
		}
		timer := time.NewTimer(delay())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func isTransient(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// watchStream is the body of a watch. It counts as open from when the cache is
// current by it until it ends.
type watchStream struct {
	body     io.ReadCloser
	watches  *Watches
	resource string

	lock sync.Mutex
	// awaited is what is in the event that ends a list which is sent as a
	// watch: until then the cache is as before. It is empty once that was read.
	awaited []byte
	// tail is the end of what was read so far, as an event may come in parts.
	tail        []byte
	open, ended bool
}

func (w *Watches) newStream(body io.ReadCloser, resource string, isList bool) *watchStream {
	s := &watchStream{body: body, watches: w, resource: resource}
	if isList {
		s.awaited = []byte(metav1.InitialEventsAnnotationKey)
	}
	s.look(nil)
	return s
}

// Read implements io.Reader.
func (s *watchStream) Read(buffer []byte) (int, error) {
	n, err := s.body.Read(buffer)
	s.look(buffer[:n])
	if err != nil {
		s.end()
	}
	return n, err
}

// Close implements io.Closer.
func (s *watchStream) Close() error {
	s.end()
	return s.body.Close()
}

// look opens the stream once what it awaits was read.
func (s *watchStream) look(read []byte) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.open || s.ended {
		return
	}
	seen := slices.Concat(s.tail, read)
	if !bytes.Contains(seen, s.awaited) {
		s.tail = bytes.Clone(seen[max(0, len(seen)-len(s.awaited)):])
		return
	}
	s.open, s.tail = true, nil
	s.watches.opened(s.resource)
}

func (s *watchStream) end() {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.open && !s.ended {
		s.watches.closed(s.resource)
	}
	s.ended = true
}
