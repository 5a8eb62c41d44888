// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestOnePlayerReachesTheTarget(t *testing.T) {
	t.Parallel()
	var last progress
	if err := train(t.Context(), func(context.Context) []player { return []player{playHere} }, func(p progress) { last = p }, ""); err != nil || last.Reward < target {
		t.Errorf("got %+v and error %v, want a reward of %d", last, err, target)
	}
}

func TestTrainingGoesOnWithoutAPlayerThatFails(t *testing.T) {
	t.Parallel()
	broken := func(context.Context, game) (float64, error) { return 0, errors.New("gone") }
	if err := train(t.Context(), func(context.Context) []player { return []player{broken, playHere} }, func(progress) {}, ""); err != nil {
		t.Error(err)
	}
}

func TestATrainingThatIsStoppedContinuesFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	file := checkpoint(filepath.Join(t.TempDir(), "cartpole.json"))
	here := func(context.Context) []player { return []player{playHere} }
	rounds := func(ctx context.Context, each func(round int), saved checkpoint) (all []progress, err error) {
		err = train(ctx, here, func(p progress) {
			p.Took = 0
			all = append(all, p)
			each(p.Round)
		}, saved)
		return all, err
	}
	whole, err := rounds(t.Context(), func(int) {}, "")
	if err != nil || len(whole) < 3 {
		t.Fatalf("%d rounds and error %v", len(whole), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	first, err := rounds(ctx, func(round int) {
		if round == 2 {
			stop()
		}
	}, file)
	if exitCode(ctx, err) != exitTerminated {
		t.Errorf("got exit code %d, want %d", exitCode(ctx, err), exitTerminated)
	}
	second, err := rounds(t.Context(), func(int) {}, file)
	if err != nil || !slices.Equal(append(first, second...), whole) {
		t.Errorf("got %d and %d rounds and error %v, want the %d of a training that is not stopped", len(first), len(second), err, len(whole))
	}
	if _, err := os.Stat(string(file)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint of a training that reached its target is left: %v", err)
	}
}

func TestTheReportIsOfTheSchema(t *testing.T) {
	t.Parallel()
	content, err := json.Marshal(reportOf(progress{Round: 7, Players: 4, Took: time.Second / 2}))
	expect.NoError(t, err)
	report, err := profilings.Parse(content)
	expect.NoError(t, err)
	if report.Progress.Done != 7 || report.MaxObserved() != 4 || report.Throughput[0].PerSecond != 8 {
		t.Errorf("%s is read as %+v", content, report)
	}
}

func TestACoordinatorAsksForCollectorsOnceAndTrainsWithThem(t *testing.T) {
	collector := httptest.NewServer(routes(func() {}))
	defer collector.Close()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer reply
		switch r.Method + " " + r.URL.Path {
		case "POST /v1alpha1/replicas":
			body, _ := io.ReadAll(r.Body) // a short body fails the comparison
			if want := `"collectors":{"replicas":2},"coordinator":"job-coordinator"`; !strings.Contains(string(body), want) {
				t.Errorf("asked by %s, want %s in it", body, want)
			}
			asked.Add(1)
		case "GET /v1alpha1/replicas":
			if got := r.URL.Query().Get("coordinator"); got != "job-coordinator" {
				t.Errorf("listed for coordinator %q", got)
			}
		default:
			t.Errorf("unexpected call: %s %s", r.Method, r.URL)
		}
		if asked.Load() > 0 {
			answer.Data.Collectors = []string{strings.TrimPrefix(collector.URL, "http://")}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	t.Setenv("KUBERNETES_SERVER_URL", strings.TrimPrefix(server.URL, "http://"))
	t.Setenv("KUBERNETES_POD_NAMESPACE", "rl")
	t.Setenv("KUBERNETES_POD_NAME", "job-coordinator")
	t.Setenv("COORDINATOR_PORT", "0")
	if err := run(t.Context(), "coordinator"); err != nil {
		t.Error(err)
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times, want once", asked.Load())
	}
}

func TestNodesAreReadFromTheVariableOrItsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "nodes")
	expect.NoError(t, os.WriteFile(path, []byte("a.di-j,,b.di-j"), 0o600))
	for _, list := range []string{"a.di-j,,b.di-j", "@" + path} {
		if got, err := nodesOf(list); err != nil || !slices.Equal(got, []string{"a.di-j:22270", "b.di-j:22270"}) {
			t.Errorf("%s: got %q and error %v", list, got, err)
		}
	}
}

func TestAnUnknownRoleIsRefused(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), "chef"); err == nil || !strings.Contains(err.Error(), `role "chef"`) {
		t.Errorf("got %v", err)
	}
}
