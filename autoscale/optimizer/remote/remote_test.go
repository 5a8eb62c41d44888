// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/internal/service"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const gi = 1 << 30

// fixed is a fallback that always makes the same plan.
type fixed struct{ calls atomic.Int32 }

func (f *fixed) Generate(context.Context, optimizer.Stage, *optimizer.Job) (optimizer.Plan, error) {
	f.calls.Add(1)
	return optimizer.Plan{Reason: "local"}, nil
}

func (f *fixed) RecoverOOM(context.Context, []optimizer.Replica, *optimizer.Job) (optimizer.Plan, error) {
	f.calls.Add(1)
	return optimizer.Plan{Reason: "local"}, nil
}

func job(name string) *optimizer.Job {
	requests := optimizer.Resources{CPU: 4000, Memory: 8 * gi}
	pods := []optimizer.Replica{{Task: "worker", Pod: name + "-worker-0", Requests: requests}}
	now := time.Unix(1_764_000_000, 0)
	return &optimizer.Job{
		Namespace: "default", Name: name, Now: now,
		Tasks:   []optimizer.Task{{Name: "worker", Type: "none", Role: optimizer.RoleWorker, Replicas: 1, Min: 1, Max: 4, Requests: requests, Template: requests, Pods: pods}},
		Samples: []optimizer.Sample{{Time: now, Speed: 10, Usage: []optimizer.Usage{{Task: "worker", Used: optimizer.Resources{CPU: 1000, Memory: gi}, Requests: requests}}}},
		Limits: optimizer.Limits{
			Job: optimizer.Resources{CPU: 20_000, Memory: 64 * gi}, Replica: optimizer.Resources{CPU: 16_000, Memory: 32 * gi}, Floor: optimizer.Resources{CPU: 100, Memory: gi / 4},
		},
	}
}

// serve returns an optimizer that asks a handler, its fallback, and how often the handler was called.
func serve(t *testing.T, handler http.HandlerFunc) (*remote.Optimizer, *fixed, *atomic.Int32) {
	t.Helper()
	calls := &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		calls.Add(1)
		handler(writer, request)
	}))
	t.Cleanup(server.Close)
	fallback := &fixed{}
	asks, err := remote.New(service.Settings{URL: server.URL, Timeout: 2 * time.Second}, fallback)
	expect.NoError(t, err)
	return asks, fallback, calls
}

// says returns a handler that answers with a body.
func says(body string) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(writer, body) // the client may have left
	}
}

func generate(t *testing.T, asks *remote.Optimizer, job *optimizer.Job) optimizer.Plan {
	t.Helper()
	plan, err := asks.Generate(t.Context(), optimizer.StageRunning, job)
	expect.NoError(t, err)
	return plan
}

func TestAPlanOfTheServiceIsUsed(t *testing.T) {
	t.Parallel()
	asks, _, _ := serve(t, func(writer http.ResponseWriter, request *http.Request) {
		var got remote.Request
		if err := json.NewDecoder(request.Body).Decode(&got); err != nil || got.Stage != optimizer.StageRunning || request.URL.Path != remote.Path {
			t.Errorf("got %+v by %s, %v", got, request.URL, err)
		}
		says(`{"namespace": "default", "name": "a", "plan": {"tasks": [{"name": "worker", "replicas": 3}], "reason": "room"}}`)(writer, request)
	})
	plan := generate(t, asks, job("a"))
	if len(plan.Tasks) != 1 || *plan.Tasks[0].Replicas != 3 || plan.Reason != "room" {
		t.Errorf("got %+v", plan)
	}
}

func TestAServiceThatLiesChangesNothingOutsideTheLimits(t *testing.T) {
	t.Parallel()
	for answer, why := range map[string]string{
		`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","replicas":2147483648}]}}`:                     "does not decode",
		`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","requests":{"cpu":1e300}}]}}`:                  "does not decode",
		`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","requests":{"cpu":NaN}}]}}`:                    "does not decode",
		`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","requests":{"memory":9223372036854775807}}]}}`: "tasks[0].requests.memory is 9223372036854775807",
		`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","replicas":-5}]}}`:                             "tasks[0].replicas is -5",
		`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","requests":{"cpu":-1}}]}}`:                     "tasks[0].requests.cpu is -1",
		`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"miner","replicas":1}]}}`:                               "must be a task of the job",
		`{"namespace":"default","name":"a","plan":{"migrate":[{"pod":"b-worker-0","requests":{"cpu":1}}]}}`:                 "must be a pod of the job",
		`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","replicas":4,"requests":{"cpu":16000}}]}}`:     "must be at most 20000, the limit of the job",
		`{"namespace":"default","name":"b","plan":{"tasks":[{"name":"worker","replicas":2}]}}`:                              "answered for another job",
		`{"namespace":"kube-system","name":"a","plan":{}}`:                                                                  "answered for another job",
		`{}`:                               "answered for another job",
		`[]`:                               "does not decode",
		`nan`:                              "does not decode",
		``:                                 "does not decode",
		strings.Repeat(`{"plan":`, 20_000): "does not decode",
	} {
		asks, _, _ := serve(t, says(answer))
		plan := generate(t, asks, job("a"))
		if !plan.Empty() || !strings.HasPrefix(plan.Reason, "local (by the local optimizer, because the ") || !strings.Contains(plan.Reason, why) {
			t.Errorf("%.100s: got %+v, want the local plan, because of %q", answer, plan, why)
		}
	}
}

func TestHugeNumbersAreClamped(t *testing.T) {
	t.Parallel()
	asks, _, _ := serve(t, says(`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","replicas":100000,"requests":{"cpu":1,"memory":1}}]}}`))
	plan := generate(t, asks, job("a"))
	if len(plan.Tasks) != 1 || *plan.Tasks[0].Replicas != 4 || plan.Tasks[0].Requests != (optimizer.Resources{CPU: 1000, Memory: gi}) {
		t.Errorf("got %+v, want 4 replicas of the peak usage", plan.Tasks)
	}
}

func TestAServiceThatHangsCostsOneTimeoutNowAndThen(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(left) }))
	calls := &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		<-left
	}))
	t.Cleanup(func() { server.CloseClientConnections() })
	asks, err := remote.New(service.Settings{URL: server.URL, Timeout: 50 * time.Millisecond}, &fixed{})
	expect.NoError(t, err)
	for i := range 100 {
		of := job(fmt.Sprintf("job-%d", i%50))
		of.Now = of.Now.Add(time.Duration(i) * time.Second / 10)
		if plan := generate(t, asks, of); !strings.HasPrefix(plan.Reason, "local (by the local optimizer, because the optimizer service d") {
			t.Errorf("got %q", plan.Reason)
		}
	}
	if got := calls.Load(); got != 3 {
		t.Errorf("the service was asked %d times in 10 seconds, want 3", got)
	}
}

func TestAServiceThatFloodsIsCutOff(t *testing.T) {
	t.Parallel()
	asks, _, _ := serve(t, func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("Content-Type", "application/json")
		for chunk := []byte(strings.Repeat(" ", 64<<10)); request.Context().Err() == nil; {
			if _, err := writer.Write(chunk); err != nil {
				return
			}
		}
	})
	if plan := generate(t, asks, job("a")); !strings.Contains(plan.Reason, "is larger than 1048576 bytes") {
		t.Errorf("got %q", plan.Reason)
	}
}

func TestAServiceThatAlwaysHasAPlanIsAskedEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	asks, fallback, calls := serve(t, says(`{"namespace":"default","name":"a","plan":{"tasks":[{"name":"worker","replicas":3}]}}`))
	of, plans := job("a"), 0
	for range 120 { // an hour
		of.Now = of.Now.Add(30 * time.Second)
		if plan := generate(t, asks, of); !plan.Empty() {
			plans, of.LastPlan = plans+1, of.Now
		}
	}
	if plans != 12 || calls.Load() != 12 || fallback.calls.Load() != 108 {
		t.Errorf("got %d plans by %d requests, and %d local decisions, want 12, 12 and 108", plans, calls.Load(), fallback.calls.Load())
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := &atomic.Int32{}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	asks, _, _ := serve(t, func(writer http.ResponseWriter, request *http.Request) {
		http.Redirect(writer, request, other.URL+"/latest/meta-data", http.StatusTemporaryRedirect)
	})
	plan := generate(t, asks, job("a"))
	if elsewhere.Load() != 0 || !strings.Contains(plan.Reason, "status 307") {
		t.Errorf("the other host was called %d times, reason %q", elsewhere.Load(), plan.Reason)
	}
}

func TestOneRequestOfAJobIsInFlight(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	asks, _, calls := serve(t, func(writer http.ResponseWriter, request *http.Request) {
		close(entered)
		<-leave
		says(`{"namespace":"default","name":"a","plan":{}}`)(writer, request)
	})
	done := make(chan optimizer.Plan)
	go func() {
		plan, _ := asks.Generate(context.Background(), optimizer.StageRunning, job("a")) // its reason is checked
		done <- plan
	}()
	<-entered
	if plan := generate(t, asks, job("a")); !strings.Contains(plan.Reason, "a request for the job is in flight") {
		t.Errorf("got %q", plan.Reason)
	}
	close(leave)
	if plan := <-done; plan.Reason != "" || calls.Load() != 1 {
		t.Errorf("got %q by %d requests", plan.Reason, calls.Load())
	}
}

func TestARefusedPlanOfOneJobDelaysThatJobOnly(t *testing.T) {
	t.Parallel()
	asks, _, calls := serve(t, says(`{"namespace":"default","name":"b","plan":{}}`))
	generate(t, asks, job("a"))
	generate(t, asks, job("a"))
	if plan := generate(t, asks, job("b")); plan.Reason != "" || calls.Load() != 2 {
		t.Errorf("got %q by %d requests, want the empty plan of the service by the second", plan.Reason, calls.Load())
	}
	later := job("a")
	later.Now = later.Now.Add(time.Minute)
	if generate(t, asks, later); calls.Load() != 3 {
		t.Errorf("got %d requests, want another one after the delay", calls.Load())
	}
}

func TestOutOfMemoryIsRecoveredWithoutTheService(t *testing.T) {
	t.Parallel()
	asks, fallback, _ := serve(t, says(`{"namespace":"default","name":"a","plan":{}}`))
	plan, err := asks.RecoverOOM(t.Context(), job("a").Tasks[0].Pods, job("a"))
	if err != nil || plan.Reason != "local" || fallback.calls.Load() != 1 {
		t.Errorf("got %+v and %v, want the local plan, because that of the service is empty", plan, err)
	}
}

func TestTheTokenIsSentByTLSOnly(t *testing.T) {
	t.Parallel()
	authorization := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		authorization <- request.Header.Get("Authorization")
		says(`{"namespace":"default","name":"a","plan":{"reason":"none"}}`)(writer, request)
	}))
	t.Cleanup(server.Close)
	folder := t.TempDir()
	settings := service.Settings{URL: server.URL, Timeout: 5 * time.Second, TokenFile: filepath.Join(folder, "token"), CAFile: filepath.Join(folder, "ca")}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	expect.NoError(t, os.WriteFile(settings.TokenFile, []byte("secret\n"), 0o600))
	asks, err := remote.New(settings, &fixed{})
	expect.NoError(t, err)
	if plan := generate(t, asks, job("b")); !strings.Contains(plan.Reason, "read the authorities of the optimizer") {
		t.Errorf("got %q, want the local plan until the authorities are there", plan.Reason)
	}
	expect.NoError(t, os.WriteFile(settings.CAFile, authority, 0o600))
	if plan := generate(t, asks, job("a")); plan.Reason != "none" {
		t.Fatalf("got %q", plan.Reason)
	}
	if got := <-authorization; got != "Bearer secret" {
		t.Errorf("got %q", got)
	}
	settings.URL = strings.Replace(settings.URL, "https", "http", 1)
	if _, err := remote.New(settings, &fixed{}); err == nil || !strings.Contains(err.Error(), "must be of scheme https") {
		t.Errorf("got %v", err)
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for url, why := range map[string]string{
		"":                      "must be a URL such as",
		"file:///etc/passwd":    "must be a URL such as",
		"https://":              "must be a URL such as",
		"https://user:secret@a": "must have no user",
		"https://a?b":           "must have no user, query",
		"://":                   "does not parse",
	} {
		_, err := remote.New(service.Settings{URL: url, Timeout: time.Second}, &fixed{})
		if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", url, err)
		}
	}
	if _, err := remote.New(service.Settings{URL: "https://a"}, &fixed{}); err == nil || !strings.Contains(err.Error(), "optimizer timeout is 0s") {
		t.Errorf("got %v", err)
	}
}
