// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// wire is a transport to an API server. The test feeds its watches.
type wire struct {
	statuses []int
	calls    int
	// streams are the last watches of each path. opened are all of them.
	streams map[string]*io.PipeWriter
	opened  []*io.PipeWriter
}

// close ends all watches.
func (w *wire) close() {
	for _, stream := range w.opened {
		_ = stream.Close()
	}
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	w.calls++
	if len(w.statuses) > 0 {
		status := w.statuses[0]
		w.statuses = w.statuses[1:]
		if status == 0 {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
	read, write := io.Pipe()
	w.streams[request.URL.Path] = write
	w.opened = append(w.opened, write)
	return &http.Response{StatusCode: http.StatusOK, Body: read}, nil
}

const (
	podsPath    = "/api/v1/pods"
	jobsPath    = "/apis/diengine.opendilab.org/v2alpha1/dijobs"
	membersPath = "/apis/diengine.opendilab.org/v2alpha1/memberships"
	configsPath = "/apis/diengine.opendilab.org/v2alpha1/aggregatorconfigs"
)

// mustOpen opens a watch and reads its events.
func mustOpen(t *testing.T, through http.RoundTripper, path, query string) (status int, end func()) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api"+path+"?watch=true"+query, http.NoBody)
	expect.NoError(t, err)
	response, err := through.RoundTrip(request) //nolint:bodyclose // the test ends the watch
	expect.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, response.Body) }()
	return response.StatusCode, func() { _ = response.Body.Close() }
}

func TestRequestsAreHeldWhileAWatchIsBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watches := NewWatches(logr.Discard(), clock.RealClock{})
		api := &wire{streams: map[string]*io.PipeWriter{}}
		through := watches.Wrap(api)
		// held returns how long a request waits, up to a minute.
		held := func() time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			if err := watches.Wait(ctx); (err != nil) != (ctx.Err() != nil) {
				t.Fatalf("got %v", err)
			}
			return time.Since(began)
		}
		expectHeld := func(when string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := held(); got != want {
				t.Errorf("%s: held for %s, want %s", when, got, want)
			}
		}
		expectHeld("before any watch is open", time.Minute)
		for _, path := range []string{podsPath, jobsPath, membersPath} {
			mustOpen(t, through, path, "")
		}
		expectHeld("while one is missing", time.Minute)
		if got := watches.Broken(); got != 2*time.Minute {
			t.Errorf("broken for %s, want two minutes", got)
		}
		mustOpen(t, through, configsPath, "")
		expectHeld("after an outage", maxCatchUp)
		expectHeld("while all are open", 0)

		step := func(what string, do func()) { t.Log(what); do() }
		step("a connection that is lost", func() {
			_ = api.streams[podsPath].CloseWithError(errors.New("connection lost"))
			expectHeld("while it is lost", time.Minute)
			mustOpen(t, through, podsPath, "")
			expectHeld("after it", maxCatchUp)
		})
		step("a watch that ends and is opened again at once", func() {
			_ = api.streams[podsPath].Close()
			synctest.Wait()
			<-time.After(3 * time.Millisecond)
			mustOpen(t, through, podsPath, "")
			expectHeld("after a watch was renewed", 3*time.Millisecond)
		})
		step("a watch that is closed by the cache", func() {
			_, end := mustOpen(t, through, podsPath, "")
			end()
			expectHeld("while another is open", 0)
		})
		step("a list that is sent as a watch, in parts", func() {
			_ = api.streams[jobsPath].Close()
			mustOpen(t, through, jobsPath, "&sendInitialEvents=true")
			synctest.Wait()
			_, _ = io.WriteString(api.streams[jobsPath], `{"type":"ADDED","object":{}}{"type":"BOOKMARK","annotations":{"k8s.io/initial-ev`)
			expectHeld("before the list is complete", time.Minute)
			_, _ = io.WriteString(api.streams[jobsPath], `ents-end":"true"}}`)
			expectHeld("once it is", maxCatchUp)
		})
		api.close()
	})
}

func TestAHeldRequestGoesOnWhenTheWatchIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watches := NewWatches(logr.Discard(), clock.RealClock{})
		api := &wire{streams: map[string]*io.PipeWriter{}}
		through := watches.Wrap(api)
		began, passed := time.Now(), make(chan time.Duration)
		go func() {
			_ = watches.Wait(t.Context())
			passed <- time.Since(began)
		}()
		for _, path := range []string{podsPath, jobsPath, membersPath, configsPath} {
			<-time.After(time.Second)
			mustOpen(t, through, path, "")
		}
		if got := <-passed; got != 4*time.Second+maxCatchUp {
			t.Errorf("went on after %s", got)
		}
		api.close()
	})
}

func TestAWatchIsTriedUntilItOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watches := NewWatches(logr.Discard(), clock.RealClock{})
		api := &wire{streams: map[string]*io.PipeWriter{}, statuses: []int{0, 503, 429, 500}}
		if status, _ := mustOpen(t, watches.Wrap(api), podsPath, ""); api.calls != 5 || status != http.StatusOK {
			t.Errorf("got status %d after %d calls", status, api.calls)
		}
		api.close()

		api.statuses = []int{http.StatusGone}
		if status, _ := mustOpen(t, watches.Wrap(api), podsPath, ""); status != http.StatusGone {
			t.Errorf("got status %d, want what the cache has to know", status)
		}

		api.statuses = make([]int, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://api"+podsPath+"?watch=1", http.NoBody)
		began := time.Now()
		if _, err := watches.Wrap(api).RoundTrip(request); err == nil || time.Since(began) != 10*time.Second { //nolint:bodyclose // there is none
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

func TestOtherRequestsAreNotFollowed(t *testing.T) {
	t.Parallel()
	watches := NewWatches(logr.Discard(), clock.RealClock{})
	api := &wire{statuses: []int{0}}
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api"+podsPath, http.NoBody)
	if _, err := watches.Wrap(api).RoundTrip(request); err == nil || api.calls != 1 { //nolint:bodyclose // there is none
		t.Errorf("got %v after %d calls, want the error after one", err, api.calls)
	}
}
