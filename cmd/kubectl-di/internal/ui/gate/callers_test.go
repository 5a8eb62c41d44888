// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// fakeCaller is a caller whose requests wait for release.
type fakeCaller struct {
	begun, release, ended chan struct{}
	refused               error
}

func newFakeCaller() *fakeCaller {
	return &fakeCaller{begun: make(chan struct{}, 9), release: make(chan struct{}), ended: make(chan struct{})}
}

func (f *fakeCaller) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	f.begun <- struct{}{}
	select {
	case <-f.release:
	case <-r.Context().Done():
	}
}

func (f *fakeCaller) Run(ctx context.Context) {
	<-ctx.Done()
	close(f.ended)
}

func (f *fakeCaller) Check(context.Context) error { return f.refused }

func (f *fakeCaller) hasEnded() bool {
	synctest.Wait()
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

// callers is a table whose tokens open fake callers of their names.
type callers struct {
	*table
	t    *testing.T
	made map[string]*fakeCaller
	full bool
}

// inTable runs a test with a table of at most two callers.
func inTable(t *testing.T, test func(c *callers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &callers{t: t, made: map[string]*fakeCaller{}}
		open := func(_ context.Context, login Login) (Caller, error) {
			if login.Token == "wrong" {
				return nil, errors.New("unknown token")
			}
			c.made[login.Token] = newFakeCaller()
			return c.made[login.Token], nil
		}
		c.table = newTable(open, Bounds{Callers: 2, IsFull: func() bool { return c.full }}, clock.RealClock{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.run(ctx) }()
		test(c)
		stop()
		<-ended
	})
}

func (c *callers) signIn(name string) error { return c.begin(name, Login{Token: name}) }

func (c *callers) signedIn(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if err := c.signIn(name); err != nil {
			c.t.Fatal(err)
		}
	}
}

// request sends a request, and returns when it is served.
func (c *callers) request(name string) {
	go func() {
		_ = c.serve(name, httptest.NewRecorder(), httptest.NewRequestWithContext(c.t.Context(), http.MethodGet, "/", http.NoBody))
	}()
	<-c.made[name].begun
}

func TestIdleCallerMakesRoomForAnotherAndABusyOneDoesNot(t *testing.T) {
	t.Parallel()
	inTable(t, func(c *callers) {
		c.signedIn("ada")
		<-time.After(time.Second)
		c.signedIn("bob", "eve")
		if !c.made["ada"].hasEnded() || c.made["bob"].hasEnded() {
			t.Error("the caller who is idle longest is still served, or the other is not")
		}
		c.request("bob")
		c.request("eve")
		if err := c.signIn("ada"); err == nil || !strings.Contains(err.Error(), "no room") {
			t.Errorf("one caller too many: %v", err)
		}
	})
}

func TestFullMemoryAdmitsNoOneWhileAllAreBusy(t *testing.T) {
	t.Parallel()
	inTable(t, func(c *callers) {
		c.signedIn("ada")
		c.request("ada")
		c.full = true
		if err := c.signIn("bob"); err == nil || c.has("bob") {
			t.Errorf("the caller without memory: %v", err)
		}
		close(c.made["ada"].release)
		synctest.Wait()
		c.signedIn("bob")
		if !c.made["ada"].hasEnded() {
			t.Error("the idle caller keeps the memory")
		}
	})
}

func TestCallerEndsWhenIdleAndNotBefore(t *testing.T) {
	t.Parallel()
	inTable(t, func(c *callers) {
		c.signedIn("ada", "bob")
		c.request("bob")
		<-time.After(idleTime - checkPause)
		if c.made["ada"].hasEnded() {
			t.Error("the caller ended early")
		}
		<-time.After(2 * checkPause)
		if !c.made["ada"].hasEnded() || c.has("ada") || c.made["bob"].hasEnded() {
			t.Error("the idle caller is served, or the busy one is not")
		}
	})
}

func TestRequestsOfARefusedCallerEnd(t *testing.T) {
	t.Parallel()
	inTable(t, func(c *callers) {
		c.signedIn("ada")
		c.made["ada"].refused = errors.New("the token is expired")
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = c.serve("ada", httptest.NewRecorder(), httptest.NewRequestWithContext(c.t.Context(), http.MethodGet, "/", http.NoBody))
		}()
		<-served
		if !c.made["ada"].hasEnded() || !errors.Is(c.serve("ada", nil, nil), errNoCaller) {
			t.Error("the caller is still served")
		}
	})
}

func TestWrongTokenMakesNoCaller(t *testing.T) {
	t.Parallel()
	inTable(t, func(c *callers) {
		if err := c.signIn("wrong"); err == nil || c.has("wrong") {
			t.Errorf("signing in: %v", err)
		}
	})
}

func TestHostsAreNamesAsBrowsersSendThem(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"", "https://jobs.example.com", "jobs.example.com/", "Jobs.example.com", "a b", "user@jobs.example.com"} {
		if _, err := OfHosts([]string{host}, true); err == nil {
			t.Errorf("host %q is accepted", host)
		}
	}
	guard, err := OfHosts([]string{"jobs.example.com", "localhost:8080", "[::1]:80"}, false)
	if err != nil || guard.origins["jobs.example.com"] != "https://jobs.example.com" || guard.origins["localhost:8080"] != "http://localhost:8080" {
		t.Errorf("the origins are %+v: %v", guard, err)
	}
}
