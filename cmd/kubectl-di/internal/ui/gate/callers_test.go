// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// fakeCaller is a caller whose requests wait for release.
type fakeCaller struct {
	begun, release, ended chan struct{}
	refused               error
	user                  string
}

func (f *fakeCaller) User() string { return f.user }

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
			// The tokens mallory-1 and mallory-2 are of one user.
			c.made[login.Token].user, _, _ = strings.Cut(login.Token, "-")
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
		expect.NoError(c.t, c.signIn(name))
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

func TestUserWithManySessionsLosesThemAndNotThoseOfOthers(t *testing.T) {
	t.Parallel()
	inTable(t, func(c *callers) {
		c.signedIn("ada")
		<-time.After(time.Second)
		for _, token := range []string{"mallory-1", "mallory-2", "mallory-3"} {
			c.signedIn(token)
			<-time.After(time.Second)
		}
		if c.made["ada"].hasEnded() || !c.made["mallory-1"].hasEnded() || !c.made["mallory-2"].hasEnded() || c.made["mallory-3"].hasEnded() {
			t.Error("the sessions of one user displace that of another")
		}
		c.request("mallory-3")
		if err := c.signIn("mallory-4"); err == nil || c.made["ada"].hasEnded() {
			t.Errorf("a user whose sessions are busy: %v", err)
		}
	})
}

func TestWorthlessTokensOfOneAddressLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan struct{})
		open := func(_ context.Context, login Login) (Caller, error) {
			if strings.HasPrefix(login.Token, "worthless") {
				<-answered
				return nil, errors.New("unknown token")
			}
			return nil, errors.New("the API server knows it")
		}
		c := newTable(open, Bounds{Callers: 2, IsFull: func() bool { return false }}, clock.RealClock{})
		for i := range 2 * mostOpening {
			go func() { _ = c.begin(strconv.Itoa(i), Login{Token: fmt.Sprint("worthless-", i), Address: "10.0.0.1"}) }()
		}
		synctest.Wait()
		if err := c.begin("ada", Login{Token: "ada", Address: "10.0.0.2"}); err == nil || !strings.Contains(err.Error(), "knows it") {
			t.Errorf("signing in: %v", err)
		}
		close(answered)
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
