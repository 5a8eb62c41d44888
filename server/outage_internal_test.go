// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server/wire"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// deployed is a deployed client as di-server sees it. It retries a broken connection 5 times, a second
// apart. Any status from 400 is an error. An answer without success is not. It sends its requests to the
// servers in turn.
type deployed struct {
	servers  []*Server
	requests int
	// later counts the answers that require a retry.
	later int
}

// answered contains the fields of an answer that the client reads.
type answered struct {
	Success bool
	Message string
	Data    *wire.Replicas
}

var errBroken = errors.New("the connection broke")

func (d *deployed) call(ctx context.Context, method, path, body string) (*answered, error) {
	for attempt := 0; ; attempt++ {
		got, err := d.once(ctx, method, path, body)
		if !errors.Is(err, errBroken) || attempt == 5 {
			return got, err
		}
		if err := passed(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

func (d *deployed) once(ctx context.Context, method, path, body string) (got *answered, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errBroken
		}
	}()
	d.requests++
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	d.servers[d.requests%len(d.servers)].Handler().ServeHTTP(recorder, request)
	if recorder.Code >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: status %d: %s", method, path, recorder.Code, recorder.Body)
	}
	got = &answered{}
	if err := json.Unmarshal(recorder.Body.Bytes(), got); err != nil {
		return nil, err
	}
	if !got.Success {
		d.later++
		if recorder.Header().Get("Retry-After") != retryAfter || !strings.Contains(recorder.Body.String(), `"code":1,`) || got.Data != nil {
			return nil, fmt.Errorf("got %v %s", recorder.Header(), recorder.Body)
		}
	}
	return got, nil
}

// until repeats a request until it succeeds. The coordinator does so for two minutes at its start, and
// programs may do so for longer.
func (d *deployed) until(ctx context.Context, patience time.Duration, method, body string) (*answered, error) {
	for begun := time.Now(); time.Since(begun) <= patience; {
		got, err := d.call(ctx, method, replicasPath, body)
		if err != nil || got.Success {
			return got, err
		}
		if err := passed(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("its patience is over")
}

// follow reads the list once a second until the context ends, as the coordinator does. It returns at the
// first error.
func (d *deployed) follow(ctx context.Context, seen func([]string)) error {
	for ctx.Err() == nil {
		got, err := d.call(ctx, http.MethodGet, replicasPath+"?namespace=ns&coordinator=job-coordinator", "{}")
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && got.Success {
			seen(got.Data.Collectors)
		}
		_ = passed(ctx, time.Second)
	}
	return nil
}

const replicasPath = "/v1alpha1/replicas"

func asking(collectors int) string {
	return fmt.Sprintf(`{"namespace":"ns","coordinator":%q,"collectors":{"replicas":%d}}`, names.CoordinatorPod("job"), collectors)
}

func TestADeployedCoordinatorOutlivesTenMinutesWithoutAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * time.Minute
		store := newMemory(t)
		job := store.newCoordinatorLed(t)
		watches, open := openWatches(t)
		client := &deployed{servers: []*Server{newMemoryServer(t, store, func(o *Options) { o.Watches = watches })}}
		if _, err := client.until(t.Context(), 2*time.Minute, http.MethodPost, asking(3)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended, lists := make(chan error, 1), 0
		var last time.Time
		go func() {
			ended <- client.follow(ctx, func(collectors []string) {
				lists, last = lists+1, time.Now()
				if len(collectors) != 3 {
					t.Errorf("the list has become %v", collectors)
				}
			})
		}()
		mustPass(t, time.Minute)
		store.set(true)
		open(false)
		began := time.Now()
		mustPass(t, outage)
		synctest.Wait()
		if last.Sub(began) > time.Second || client.later < 60 {
			t.Errorf("a list was answered %s after the watches broke; %d times later", last.Sub(began), client.later)
		}
		before := lists
		store.set(false)
		open(true)
		mustPass(t, 10*time.Second)
		synctest.Wait()
		if lists < before+5 {
			t.Errorf("%d lists were answered in the 10 seconds after the outage", lists-before)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the client has ended: %v", err)
		}
		if got := len(store.members(t, job)); got != 3 {
			t.Errorf("the job has %d members", got)
		}
	})
}

func TestAWriteWithUnknownOutcomeIsDoneOnceAfterALongOutage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method  string
		servers int
		members int
	}{
		"POST to one server":   {http.MethodPost, 1, 7},
		"POST to two servers":  {http.MethodPost, 2, 7},
		"DELETE to one server": {http.MethodDelete, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newMemory(t)
				job := store.newCoordinatorLed(t)
				watches, open := openWatches(t)
				client := &deployed{}
				for range tc.servers {
					client.servers = append(client.servers, newMemoryServer(t, store, func(o *Options) { o.Watches = watches }))
				}
				if _, err := client.until(t.Context(), time.Minute, http.MethodPost, asking(5)); err != nil {
					t.Fatal(err)
				}
				mustPass(t, time.Minute)
				store.lose()
				done := make(chan error, 1)
				go func() {
					_, err := client.until(t.Context(), time.Hour, tc.method, asking(2))
					done <- err
				}()
				mustPass(t, 3*time.Second)
				open(false)
				mustPass(t, 10*time.Minute)
				store.set(false)
				open(true)
				expect.NoError(t, <-done)
				if got := len(store.members(t, job)); got != tc.members {
					t.Errorf("the job has %d members, want %d", got, tc.members)
				}
			})
		})
	}
}

// remove sends a removal of two collectors once, and returns how many are removed.
func remove(ctx context.Context, server *Server) (int, error) {
	client := &deployed{servers: []*Server{server}}
	got, err := client.call(ctx, http.MethodDelete, replicasPath, asking(2))
	if err != nil || !got.Success {
		return 0, err
	}
	return len(got.Data.Collectors), nil
}

func TestAnUnansweredRemovalIsDoneOnceByAnotherServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// between runs before the removal is repeated.
		between func(context.Context, *testing.T, *memory, *Server)
		// removed is how many are removed by the repeat. left is how many remain.
		removed, left int
	}{
		"soon": {func(context.Context, *testing.T, *memory, *Server) {}, 2, 5},
		"after the time for which a repeat is known": {func(ctx context.Context, t *testing.T, _ *memory, _ *Server) {
			t.Helper()
			mustPass(t, 31*time.Second)
		}, 2, 3},
		"after the same coordinator asked for more": {func(ctx context.Context, t *testing.T, _ *memory, other *Server) {
			t.Helper()
			client := &deployed{servers: []*Server{other}}
			if got, err := client.call(ctx, http.MethodPost, replicasPath, asking(1)); err != nil || !got.Success {
				t.Fatalf("got %+v, %v", got, err)
			}
		}, 2, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newMemory(t)
				job := store.newCoordinatorLed(t)
				lost, other := newMemoryServer(t, store), newMemoryServer(t, store)
				client := &deployed{servers: []*Server{lost}}
				if _, err := client.until(t.Context(), time.Minute, http.MethodPost, asking(7)); err != nil {
					t.Fatal(err)
				}
				store.lose()
				if removed, err := remove(t.Context(), lost); err != nil || removed != 0 {
					t.Fatalf("got %d removed, %v", removed, err)
				}
				store.set(false)
				tc.between(t.Context(), t, store, other)
				if removed, err := remove(t.Context(), other); err != nil || removed != tc.removed {
					t.Errorf("got %d removed, %v", removed, err)
				}
				if got := len(store.members(t, job)); got != tc.left {
					t.Errorf("the job has %d members, want %d", got, tc.left)
				}
				if removed, err := remove(t.Context(), other); err != nil || removed != 2 {
					t.Errorf("the next removal: got %d removed, %v", removed, err)
				}
				if got := len(store.members(t, job)); got != tc.left-2 {
					t.Errorf("the job has %d members after the next removal, want %d", got, tc.left-2)
				}
			})
		})
	}
}

// apart is a clock that differs from the system's.
type apart struct {
	clock.RealClock
	by time.Duration
}

func (a apart) Now() time.Time                   { return a.RealClock.Now().Add(a.by) }
func (a apart) Since(at time.Time) time.Duration { return a.Now().Sub(at) }

func TestServersWhoseClocksDifferKnowARepeat(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{-time.Hour, -40 * time.Second, 40 * time.Second, time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newMemory(t)
				job := store.newCoordinatorLed(t)
				differ := func(options *Options) { options.Clock = apart{by: by} }
				servers := []*Server{newMemoryServer(t, store), newMemoryServer(t, store, differ)}
				post := func(server *Server, want int, when string) {
					t.Helper()
					client := &deployed{servers: []*Server{server}}
					if got, err := client.call(t.Context(), http.MethodPost, replicasPath, asking(2)); err != nil || !got.Success {
						t.Fatalf("%s: got %+v, %v", when, got, err)
					}
					if got := len(store.members(t, job)); got != want {
						t.Errorf("%s: the job has %d members, want %d", when, got, want)
					}
				}
				post(servers[0], 2, "the first request")
				mustPass(t, 20*time.Second)
				post(servers[1], 2, "its repeat at the other server")
				mustPass(t, 11*time.Second)
				post(servers[1], 4, "the same after the time for which a repeat is known")
				post(servers[0], 4, "its repeat at the first server")
				// A server that has just started does not know how old the request is.
				mustPass(t, time.Minute)
				post(newMemoryServer(t, store, differ), 4, "the same at a new server")
			})
		})
	}
}

func TestRemovalsAtOnceAreAllDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const removals = 6
		store := newMemory(t)
		job := store.newCoordinatorLed(t)
		servers := []*Server{newMemoryServer(t, store), newMemoryServer(t, store)}
		client := &deployed{servers: servers}
		if _, err := client.until(t.Context(), time.Minute, http.MethodPost, asking(2*removals+1)); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, removals)
		for i := range removals {
			go func() {
				removed, err := remove(t.Context(), servers[i%len(servers)])
				if err == nil && removed != 2 {
					err = fmt.Errorf("%d are removed", removed)
				}
				errs <- err
			}()
		}
		for range removals {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if got := len(store.members(t, job)); got != 1 {
			t.Errorf("the job has %d members, want 1", got)
		}
	})
}

func TestAJobThatIsSuspendedIsToBeAskedAgain(t *testing.T) {
	t.Parallel()
	store := newMemory(t)
	job := store.newCoordinatorLed(t)
	yes := true
	job.Spec.Suspend = &yes
	expect.NoError(t, store.objects.Update(t.Context(), job))
	client := &deployed{servers: []*Server{newMemoryServer(t, store)}}
	got, err := client.call(t.Context(), http.MethodPost, replicasPath, asking(1))
	if err != nil || got.Success || got.Message != "job ns/job is suspended: ask again when it is resumed" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAFaultOfTheServerEndsNoDeployedClient(t *testing.T) {
	t.Parallel()
	store := newMemory(t)
	job := store.newCoordinatorLed(t)
	job.Spec.Tasks[1].Template = v2alpha1.RawObject{}
	job.Spec.Tasks[1].Template.Raw = []byte(`{"spec":{"containers":"none"}}`)
	expect.NoError(t, store.objects.Update(t.Context(), job))
	client := &deployed{servers: []*Server{newMemoryServer(t, store)}}
	got, err := client.call(t.Context(), http.MethodPost, replicasPath, asking(1))
	if err != nil || got.Success || got.Message != "the request could not be done, see the log of di-server" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// mustPass waits for a time.
func mustPass(t *testing.T, wait time.Duration) {
	t.Helper()
	expect.NoError(t, passed(t.Context(), wait))
}
