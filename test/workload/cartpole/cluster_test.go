// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// cluster runs the pods of a job in this process with a simulated network and di-server. It runs in
// a bubble of synctest, so pauses take no time.
type cluster struct {
	*testing.T
	ctx context.Context //nolint:containedctx // ends all pods

	mu         sync.Mutex // protects all below
	ports      map[string]chan net.Conn
	pods       map[string]context.CancelFunc
	made       int
	collectors []string
	learners   []string
	parts      map[string][]string // of aggregators
	absent     map[string]bool     // pods that never start
	requests   []string
	fault      func(request string) int
	wait       sync.WaitGroup
}

// inCluster runs a test with a cluster.
func inCluster(t *testing.T, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &cluster{
			T: t, ctx: ctx, ports: map[string]chan net.Conn{}, pods: map[string]context.CancelFunc{},
			parts: map[string][]string{}, absent: map[string]bool{},
		}
		c.wait.Go(func() { _ = c.process("di-server", nil, io.Discard).serve(ctx, 8080, c) })
		test(c)
		cancel()
		c.wait.Wait()
	})
}

// process returns a process on a host of the cluster.
func (c *cluster) process(host string, env map[string]string, stdout io.Writer) *process {
	hostname, _, _ := strings.Cut(host, ".")
	return &process{
		getenv: func(key string) string { return env[key] }, hostname: hostname, stdout: stdout, log: slog.New(slog.DiscardHandler),
		listen: func(_ context.Context, port int) (net.Listener, error) {
			return c.listen(fmt.Sprintf("%s:%d", host, port))
		},
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.dial}},
	}
}

type listener struct {
	conns chan net.Conn
	close func()
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }
func (l *listener) Close() error   { l.close(); return nil }
func (l *listener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (c *cluster) listen(address string) (net.Listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ports[address] != nil {
		return nil, fmt.Errorf("%s is in use", address)
	}
	conns := make(chan net.Conn, 64)
	c.ports[address] = conns
	return &listener{conns: conns, close: sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ports, address)
		close(conns)
	})}, nil
}

func (c *cluster) dial(_ context.Context, _, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conns := c.ports[address]
	if conns == nil {
		return nil, &net.DNSError{Err: "no such host", Name: address}
	}
	here, there := net.Pipe()
	conns <- there
	return here, nil
}

// coordinate runs a coordinator until it exits.
func (c *cluster) coordinate(stdout io.Writer, args ...string) error {
	env := c.env("job-coordinator", nil)
	return run(c.ctx, c.process("job-coordinator.ns", env, stdout), append([]string{"coordinator"}, args...))
}

func (c *cluster) env(pod string, more map[string]string) map[string]string {
	env := map[string]string{"KUBERNETES_SERVER_URL": "di-server:8080", "KUBERNETES_POD_NAMESPACE": "ns", "KUBERNETES_POD_NAME": pod}
	maps.Copy(env, more)
	return env
}

// start runs a new pod until it is stopped. The caller holds the lock.
func (c *cluster) start(role string, env map[string]string, args ...string) string {
	c.made++
	pod := fmt.Sprintf("job-%s-%d", role, c.made)
	if c.absent[pod] {
		return pod
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.pods[pod] = cancel
	c.wait.Go(func() {
		_ = run(ctx, c.process(pod+".ns", c.env(pod, env), io.Discard), append([]string{role}, args...))
	})
	return pod
}

func (c *cluster) startLearner(gpus int) string {
	if gpus == 0 {
		return c.start("learner", nil) + ".ns:22271"
	}
	aggregator := c.start("aggregator", nil, "--strict")
	for rank := 0; rank < gpus; rank += 2 {
		size := min(2, gpus-rank)
		pod := c.start("learner", map[string]string{
			"WORLD_SIZE": strconv.Itoa(gpus), "LOCAL_WORLD_SIZE": strconv.Itoa(size), "START_RANK": strconv.Itoa(rank),
		})
		for port := range size {
			c.parts[aggregator] = append(c.parts[aggregator], fmt.Sprintf("%s.ns:%d", pod, learnerPort+port))
		}
	}
	return aggregator + ".ns:22272"
}

// ServeHTTP implements the part of di-server's protocol that the program uses, for one job.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body) // a short body fails the test by its content
	request := r.Method + " " + r.URL.Path + " " + string(content)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, request)
	if c.fault != nil && c.fault(request) != 0 {
		w.WriteHeader(c.fault(request))
		return
	}
	c.serve(r.Method, r.URL.Path, content)
	list := diserver.Replicas{Collectors: c.collectors, Learners: c.learners}
	if aggregator := r.URL.Query().Get("aggregator"); aggregator != "" {
		list = diserver.Replicas{Learners: c.parts[aggregator]}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"success": true, "data": list})
}

func (c *cluster) serve(method, path string, content []byte) {
	var demand struct{ Collectors, Learners diserver.Resources }
	switch {
	case path == "/v1alpha1/replicas/failed":
		var failed diserver.Failed
		if err := json.Unmarshal(content, &failed); err != nil {
			c.Error(err)
		}
		for i, url := range c.collectors {
			if slices.Contains(failed.Collectors, podNames([]string{url})[0]) {
				c.collectors[i] = c.start("collector", nil) + ".ns:22270"
			}
		}
		return
	case path != "/v1alpha1/replicas" || method == http.MethodGet:
		return
	}
	if err := json.Unmarshal(content, &demand); err != nil {
		c.Error(err)
	}
	if method == http.MethodDelete {
		c.collectors = c.collectors[:len(c.collectors)-demand.Collectors.Replicas]
		return
	}
	gpus, _ := strconv.Atoi(demand.Learners.GPUs) // no GPUs given means none
	for range demand.Collectors.Replicas {
		c.collectors = append(c.collectors, c.start("collector", nil)+".ns:22270")
	}
	for range demand.Learners.Replicas {
		c.learners = append(c.learners, c.startLearner(gpus))
	}
}

// crash ends pods permanently, after their replacements have names.
func (c *cluster) crash(pods ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range pods {
		c.pods[pod]()
	}
}

// dist calls di-server as users do.
func (c *cluster) dist(args ...string) {
	p := c.process("job-coordinator.ns", c.env("job-coordinator", nil), io.Discard)
	if err := run(c.ctx, p, append([]string{"dist"}, args...)); err != nil {
		c.Error(err)
	}
}

// requested returns the requests so far that have a prefix.
func (c *cluster) requested(prefix string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.requests), func(r string) bool { return !strings.HasPrefix(r, prefix) })
}

// output records the lines that a process prints, and reacts once to one of them.
type output struct {
	at    string
	react func()

	mu    sync.Mutex // protects lines
	lines []string
}

func (o *output) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(p))
	o.mu.Lock()
	o.lines = append(o.lines, line)
	o.mu.Unlock()
	if o.at != "" && strings.Contains(line, o.at) {
		o.at = ""
		o.react()
	}
	return len(p), nil
}

// count is the number of lines so far.
func (o *output) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lines)
}

// outcome returns the last line without parts that differ from run to run.
func (o *output) outcome() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(slices.DeleteFunc(strings.Fields(o.lines[len(o.lines)-1]), func(field string) bool {
		key, _, _ := strings.Cut(field, "=")
		return slices.Contains([]string{"elapsed", "collectors", "learners", "return"}, key)
	}), " ")
}

// wantReached compares an outcome with that of the same training in one process.
func (c *cluster) wantReached(got *output, err error) {
	c.Helper()
	expect.NoError(c, err)
	want := &output{}
	expect.NoError(c, run(c.Context(), c.process("alone", nil, want), []string{"serial", easyTarget}))
	if got.outcome() != want.outcome() {
		c.Errorf("got %q, want %q", got.outcome(), want.outcome())
	}
}

// easyTarget is reached early, which keeps the tests short.
const easyTarget = "--target=60"
