// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/roles"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/standin"
)

// workers are the tasks of a job by rank.
func workers() []string {
	return []string{"evaluator", "learner", "learner", "collector", "collector", "collector"}
}

// output is a writer that may be read while others write.
type output struct {
	mu     sync.Mutex // protects buffer
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(o.buffer.String()), "\n")
	return lines[len(lines)-1]
}

// runWorkerOf runs the worker of one rank to its end.
func runWorkerOf(ctx context.Context, network *standin.Network, rank int, stdout io.Writer, args ...string) error {
	hosts := make([]string, len(workers()))
	mates := map[string][]string{}
	for i, task := range workers() {
		hosts[i] = "job-" + strconv.Itoa(i) + ".di-job.ns.svc"
		mates[task] = append(mates[task], hosts[i])
	}
	task := workers()[rank]
	env := map[string]string{
		"DI_RANK": strconv.Itoa(rank), "DI_NODES": strings.Join(hosts, ","), "DI_JOB_ID": "ns.job.0",
		"DI_SERVER_URL":                          "http://di-server:8081",
		"DI_" + strings.ToUpper(task) + "_NODES": strings.Join(mates[task], ","),
	}
	host := network.Host(hosts[rank])
	return roles.Run(ctx, roles.System{
		Getenv: func(key string) string { return env[key] }, Hostname: "job-" + strconv.Itoa(rank),
		Stdout: stdout, Log: slog.New(slog.DiscardHandler), Now: time.Now, Listen: host.Listen, Dial: host.Dial,
	}, append([]string{"worker", "--announce-interval=10ms", "--retry=10ms", "--profilings-interval=1ms", "--target=80"}, args...))
}

// profilings is a di-server that keeps what is posted.
type profilings struct {
	mu    sync.Mutex // protects posts
	posts []string
}

func (p *profilings) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a short body fails the test by its content
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts = append(p.posts, r.URL.Path+" "+string(body))
}

func TestWorkersFindEachOtherTrainAndAllSucceed(t *testing.T) {
	t.Parallel()
	network := standin.NewNetwork()
	server := &profilings{}
	listener, err := network.Host("di-server").Listen(t.Context(), 8081)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = peer.Serve(ctx, listener, server) })

	out := &output{}
	results := make([]error, len(workers()))
	var wait sync.WaitGroup
	for rank := range workers() {
		wait.Go(func() { results[rank] = runWorkerOf(ctx, network, rank, out) })
	}
	wait.Wait()
	cancel()
	serving.Wait()
	for rank, err := range results {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	alone := &output{}
	if err := roles.Run(t.Context(), roles.System{
		Getenv: func(string) string { return "" }, Stdout: alone, Log: slog.New(slog.DiscardHandler),
		Now: time.Now, Listen: network.Host("alone").Listen,
	}, []string{"serial", "--target=80"}); err != nil {
		t.Fatal(err)
	}
	got, want := strings.Fields(out.lastLine()), strings.Fields(alone.lastLine())
	if !slices.Equal(got[:6], want[:6]) || got[len(got)-1] != want[len(want)-1] {
		t.Errorf("got %q, want the curve of one process, %q", got, want)
	}
	last := server.posts[len(server.posts)-1]
	var round, steps int
	if _, err := fmt.Sscanf(last, `/v2alpha1/job/ns.job.0/profilings {"round":%d,"steps":%d,`, &round, &steps); err != nil {
		t.Fatalf("profilings %q: %v", last, err)
	}
	if wantRound := fmt.Sprint("round=", round); wantRound != want[1] || fmt.Sprint("steps=", steps) != want[2] {
		t.Errorf("got last profilings %q, want those of %q", last, want)
	}
}

func TestAWorkerThatComesLateLearnsOfTheEnd(t *testing.T) {
	t.Parallel()
	network := standin.NewNetwork()
	var wait sync.WaitGroup
	results := make([]error, len(workers()))
	late := len(workers()) - 1
	finished := make(chan struct{})
	out := &watcher{trigger: "result=reached", reached: finished}
	for rank := range late {
		wait.Go(func() { results[rank] = runWorkerOf(t.Context(), network, rank, out) })
	}
	<-finished
	results[late] = runWorkerOf(t.Context(), network, late, io.Discard)
	wait.Wait()
	if err := errors.Join(results...); err != nil {
		t.Error(err)
	}
}

// watcher tells when something is written.
type watcher struct {
	trigger string
	reached chan struct{}
	once    sync.Once
}

func (w *watcher) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.trigger) {
		w.once.Do(func() { close(w.reached) })
	}
	return len(p), nil
}

func TestAWorkerFailsThatHearsNothingOfTheLeader(t *testing.T) {
	t.Parallel()
	err := runWorkerOf(t.Context(), standin.NewNetwork(), 4, io.Discard, "--leader-timeout=50ms")
	if err == nil || !strings.Contains(err.Error(), "leader: not heard of") {
		t.Errorf("got %v, want it to miss the leader", err)
	}
}

func TestAWorkerStopsWhenAsked(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := runWorkerOf(ctx, standin.NewNetwork(), 1, io.Discard)
	if roles.ExitCode(err) != roles.ExitTerminated {
		t.Errorf("got %v, want %v", err, roles.ErrTerminated)
	}
}

func TestWrongArgumentsAreUsageErrors(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"no role":       {},
		"unknown role":  {"chef"},
		"unknown flag":  {"collector", "--salt"},
		"argument":      {"serial", "now"},
		"no di-server":  {"coordinator"},
		"no world":      {"ddp-learner"},
		"no aggregator": {"aggregator"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := standin.NewNetwork().Host("host")
			err := roles.Run(t.Context(), roles.System{
				Getenv: func(string) string { return "" }, Stdout: io.Discard, Log: slog.New(slog.DiscardHandler),
				Now: time.Now, Listen: host.Listen, Dial: host.Dial,
			}, args)
			if roles.ExitCode(err) != roles.ExitUsage {
				t.Errorf("got %v, want a usage error", err)
			}
		})
	}
}
