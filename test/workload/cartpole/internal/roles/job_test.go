// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/roles"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/standin"
)

// easyTarget is reached early, which keeps the tests short.
const easyTarget = "--target=60"

// config describes a job.
type config struct {
	// gpusPerNode is the largest number of GPUs of one pod.
	gpusPerNode int
	// The arguments of the roles.
	coordinator, aggregator, learner []string
	// restart is the pause before a process that ended is started again.
	restart time.Duration
}

// localJob is a coordinator-led job whose roles all run in this process, with
// stand-ins for the cluster and di-server.
type localJob struct {
	Server *standin.Server
	Keeper *standin.Keeper
	system roles.System
	config config
	ctx    context.Context //nolint:containedctx // the life of the job
	cancel context.CancelFunc
	served chan error
}

// startJob starts everything but the coordinator.
func startJob(ctx context.Context, system roles.System, c config) (*localJob, error) {
	ctx, cancel := context.WithCancel(ctx)
	j := &localJob{system: system, config: c, ctx: ctx, cancel: cancel, served: make(chan error, 1)}
	network := standin.NewNetwork()
	j.Keeper = standin.NewKeeper(ctx, c.restart, j.run)
	j.Server = standin.NewServer("default", "cartpole", c.gpusPerNode, network, j.Keeper)
	listener, err := network.Host(standin.ServerName).Listen(ctx, standin.ServerPort)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() { j.served <- peer.Serve(ctx, listener, j.Server) }()
	return j, nil
}

// Coordinate runs the coordinator to its end.
func (j *localJob) Coordinate() error {
	return j.run(j.ctx, j.Server.CoordinatorPod())
}

// Stop stops everything.
func (j *localJob) Stop() error {
	j.cancel()
	j.Keeper.Wait()
	return <-j.served
}

func (j *localJob) run(ctx context.Context, pod standin.Pod) error {
	system := j.system
	system.Getenv = func(key string) string { return pod.Env[key] }
	system.Hostname, system.Listen, system.Dial = pod.Name, pod.Host.Listen, pod.Host.Dial
	system.Log = system.Log.With("pod", pod.Name)
	args := []string{pod.Role}
	switch pod.Role {
	case "coordinator":
		args = append(args, j.config.coordinator...)
	case "aggregator":
		args = append(args, j.config.aggregator...)
	case "learner":
		if pod.Env["WORLD_SIZE"] != "" {
			args = append(args, j.config.learner...)
		}
	}
	err := roles.Run(ctx, system, args)
	if err != nil && ctx.Err() == nil {
		system.Log.Error("process ended", "error", err)
	}
	return err
}

// board collects what the coordinator prints and reacts once to a line.
type board struct {
	mu    sync.Mutex // protects last and at
	last  string
	at    string
	react func()
}

func (b *board) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.last = strings.TrimSpace(string(p))
	hit := b.at != "" && strings.Contains(b.last, b.at)
	if hit {
		b.at = ""
	}
	b.mu.Unlock()
	if hit {
		b.react()
	}
	return len(p), nil
}

// outcome is the last line without what may differ from run to run.
func (b *board) outcome() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kept []string
	for field := range strings.FieldsSeq(b.last) {
		switch key, _, _ := strings.Cut(field, "="); key {
		case "elapsed", "collectors", "learners":
		default:
			kept = append(kept, field)
		}
	}
	return strings.Join(kept, " ")
}

// job is a job with short pauses.
func job(t *testing.T, b *board, gpusPerNode int, coordinator ...string) *localJob {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	system := roles.System{Stdout: b, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	j, err := startJob(ctx, system, config{
		gpusPerNode: gpusPerNode,
		coordinator: append([]string{
			easyTarget, "--interval=10ms", "--connect-retry=10ms", "--retry=10ms", "--server-retry=10ms",
		}, coordinator...),
		aggregator: []string{"--interval=10ms", "--connect-retry=10ms"},
		learner:    []string{"--join-interval=10ms"},
		restart:    10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := j.Stop(); err != nil {
			t.Error(err)
		}
	})
	return j
}

// wantReached compares the outcome with that of the same training in one process.
func wantReached(t *testing.T, b *board, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	alone := &board{}
	system := roles.System{
		Getenv: func(string) string { return "" }, Stdout: alone, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Listen: standin.NewNetwork().Host("alone").Listen,
	}
	if err := roles.Run(t.Context(), system, []string{"serial", easyTarget}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.outcome(), alone.outcome(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// ask calls di-server as the coordinator's command line does.
func ask(ctx context.Context, j *localJob, method, path, body string) {
	j.Server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
}

func TestAJobReachesTheTargetByTheCurveOfItsSeed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		gpusPerNode int
		args        []string
	}{
		"a learner of one process":       {8, []string{"--strict"}},
		"2 GPUs in one pod":              {8, []string{"--strict", "--learner-gpus=2"}},
		"10 GPUs in pods of 8 and 2":     {8, []string{"--strict", "--learner-gpus=10", "--collectors=5"}},
		"2 learners, forgiving":          {8, []string{"--learners=2"}},
		"learner units of 3 GPUs by 1":   {1, []string{"--learner-gpus=3", "--learners=2"}},
		"a single collector, forgiving":  {8, []string{"--collectors=1"}},
		"5 collectors and a strict mode": {8, []string{"--strict", "--collectors=5"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &board{}
			wantReached(t, b, job(t, b, tc.gpusPerNode, tc.args...).Coordinate())
		})
	}
}

func TestLostReplicasAreReportedAndReplaced(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stopped []string
		args    []string
	}{
		"all collectors":    {[]string{"collector-00001", "collector-00002"}, nil},
		"the learner":       {[]string{"learner-00003"}, nil},
		"the aggregator":    {[]string{"aggregator-00003"}, []string{"--learner-gpus=2"}},
		"half of a learner": {[]string{"ddp-learner-00005"}, []string{"--learner-gpus=2"}},
		"everything at once": {
			[]string{"collector-00001", "collector-00002", "aggregator-00003", "ddp-learner-00004"}, []string{"--learner-gpus=2"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var j *localJob
			b := &board{at: "round=5 ", react: func() {
				for _, pod := range tc.stopped {
					j.Keeper.Stop("cartpole-" + pod)
				}
			}}
			j = job(t, b, 1, tc.args...)
			wantReached(t, b, j.Coordinate())
			reported := 0
			for _, r := range j.Server.Requests() {
				if r.Path == "/v1alpha1/replicas/failed" {
					reported++
				}
			}
			if reported == 0 {
				t.Error("nothing was reported as failed")
			}
		})
	}
}

func TestReplicasMayBeAddedAndTakenAwayMeanwhile(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"--strict=true", "--strict=false"} {
		var j *localJob
		b := &board{at: "round=5 ", react: func() {
			ask(t.Context(), j, http.MethodPost, "/v1alpha1/replicas", `{"collectors":{"replicas":3}}`)
			ask(t.Context(), j, http.MethodDelete, "/v1alpha1/replicas", `{"collectors":{"replicas":4}}`)
		}}
		j = job(t, b, 1, mode, "--min-round=5ms")
		wantReached(t, b, j.Coordinate())
	}
}

func TestAStrictCoordinatorDiesOfAnyErrorStatus(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		method string
		after  int
	}{
		"of the first request": {http.MethodPost, 0},
		"of a later look":      {http.MethodGet, 3},
	}
	for name, tc := range tests {
		for _, status := range []int{404, 409, 500} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				t.Parallel()
				j := job(t, &board{}, 1, "--strict", "--min-round=1h")
				seen := 0
				j.Server.SetFault(func(r standin.Request) int {
					if r.Method == tc.method {
						seen++
					}
					if seen > tc.after {
						return status
					}
					return 0
				})
				err := j.Coordinate()
				if roles.ExitCode(err) != roles.ExitFailed || !strings.Contains(err.Error(), fmt.Sprintf("with status %d", status)) {
					t.Errorf("got %v, want it to die of status %d", err, status)
				}
			})
		}
	}
}

func TestAForgivingCoordinatorOutlivesErrors(t *testing.T) {
	t.Parallel()
	b := &board{}
	j := job(t, b, 1)
	seen := 0
	j.Server.SetFault(func(standin.Request) int {
		seen++
		return []int{500, 404, 0}[seen%3]
	})
	wantReached(t, b, j.Coordinate())
}

func TestAStrictCoordinatorDiesWhenAVanishedReplicaDoesNotLetItLeave(t *testing.T) {
	t.Parallel()
	var j *localJob
	b := &board{at: "collectors=2 ", react: func() {
		j.Keeper.Stop("cartpole-collector-00002")
		ask(t.Context(), j, http.MethodDelete, "/v1alpha1/replicas", `{"collectors":{"replicas":1}}`)
	}}
	j = job(t, b, 1, "--strict", "--min-round=1s")
	err := j.Coordinate()
	if roles.ExitCode(err) != roles.ExitFailed || !strings.Contains(err.Error(), "DELETE /disconnect") {
		t.Errorf("got %v, want it to die of DELETE /disconnect", err)
	}
}

func TestAStrictCoordinatorNeverReportsWhatItWasConnectedTo(t *testing.T) {
	t.Parallel()
	var j *localJob
	b := &board{at: "round=3 ", react: func() { j.Keeper.Stop("cartpole-collector-00001") }}
	j = job(t, b, 1, "--strict")
	wantReached(t, b, j.Coordinate())
	for _, r := range j.Server.Requests() {
		if r.Path == "/v1alpha1/replicas/failed" {
			t.Errorf("reported %s", r.Body)
		}
	}
}

func TestAStrictCoordinatorGivesUpWhenNothingCanBeConnected(t *testing.T) {
	t.Parallel()
	j := job(t, &board{}, 1, "--strict", "--collectors=0", "--learners=0", "--connect-timeout=50ms")
	if err := j.Coordinate(); err == nil || !strings.Contains(err.Error(), "could be connected within") {
		t.Errorf("got %v, want it to give up", err)
	}
}

func TestMissingTheTargetHasAnExitCodeOfItsOwn(t *testing.T) {
	t.Parallel()
	b := &board{}
	err := job(t, b, 1, "--max-rounds=2").Coordinate()
	if !errors.Is(err, roles.ErrMissed) || roles.ExitCode(err) != roles.ExitMissed || !strings.HasPrefix(b.last, "result=missed ") {
		t.Errorf("got %v and %q, want a miss", err, b.last)
	}
}

func TestTheFirstRequestIsPostedOnceAndLooksCarryAnEmptyObject(t *testing.T) {
	t.Parallel()
	b := &board{}
	j := job(t, b, 1, "--strict", "--learner-gpus=2")
	wantReached(t, b, j.Coordinate())
	posts := 0
	for _, r := range j.Server.Requests() {
		switch r.Method {
		case http.MethodPost:
			posts++
		case http.MethodGet:
			if r.Body != "{}" || r.ContentType != "" {
				t.Errorf("got body %q of type %q, want {} of none", r.Body, r.ContentType)
			}
		}
	}
	if posts != 1 {
		t.Errorf("got %d posts, want 1", posts)
	}
}
