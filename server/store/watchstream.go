// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Wrap returns a transport that observes watches. The configuration of the cache must use it.
func (w *Watches) Wrap(next http.RoundTripper) http.RoundTripper {
	return &watchTransport{watches: w, next: next}
}

// watchTransport observes the watches among its requests.
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
	response, err := t.open(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	response.Body = t.watches.newStream(response.Body, path.Base(request.URL.Path), query.Get("sendInitialEvents") == "true")
	return response, nil
}

// open opens a watch and retries transient failures. Without retries the cache would back off for up to a
// minute and then list all objects.
func (t *watchTransport) open(request *http.Request) (*http.Response, error) {
	ctx, delay := request.Context(), backoff()
	for logged := false; ; logged = true {
		response, err := t.next.RoundTrip(request)
		if ctx.Err() != nil || err == nil && !isTransientStatus(response.StatusCode) {
			return response, err
		}
		if err == nil {
			err = errors.Join(errors.New(response.Status), response.Body.Close())
		}
		if !logged {
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

func isTransientStatus(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// watchStream is the body of a watch. It counts as open from the time when it has made the cache current
// until it ends.
type watchStream struct {
	body     io.ReadCloser
	watches  *Watches
	resource string

	mutex sync.Mutex
	// bookmark marks the event at the end of a streamed initial list. Until then the cache is stale. It is
	// empty if there is no such list.
	bookmark []byte
	// tail is the end of the bytes read, because the bookmark may span several reads.
	tail        []byte
	open, ended bool
}

func (w *Watches) newStream(body io.ReadCloser, resource string, isList bool) *watchStream {
	s := &watchStream{body: body, watches: w, resource: resource}
	if isList {
		s.bookmark = []byte(metav1.InitialEventsAnnotationKey)
	}
	s.scan(nil)
	return s
}

// Read implements io.Reader.
func (s *watchStream) Read(buffer []byte) (int, error) {
	n, err := s.body.Read(buffer)
	s.scan(buffer[:n])
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

// scan marks the stream as open once it has read the bookmark.
func (s *watchStream) scan(read []byte) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.open || s.ended {
		return
	}
	seen := slices.Concat(s.tail, read)
	if !bytes.Contains(seen, s.bookmark) {
		s.tail = bytes.Clone(seen[max(0, len(seen)-len(s.bookmark)):])
		return
	}
	s.open, s.tail = true, nil
	s.watches.opened(s.resource)
}

func (s *watchStream) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.open && !s.ended {
		s.watches.closed(s.resource)
	}
	s.ended = true
}
