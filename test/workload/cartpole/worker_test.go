// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// workers returns the tasks of a job by rank.
func workers() []string {
	return []string{"evaluator", "learner", "learner", "collector", "collector", "collector"}
}

func hostOf(rank int) string { return fmt.Sprintf("job-%d.di-job.ns.svc", rank) }

// work runs the worker of a rank until it exits. It knows only the nodes of its own task.
func (c *cluster) work(ctx context.Context, rank int, stdout io.Writer, args ...string) error {
	var all, mates []string
	for i, task := range workers() {
		all = append(all, hostOf(i))
		if task == workers()[rank] {
			mates = append(mates, hostOf(i))
		}
	}
	return run(ctx, c.process(hostOf(rank), map[string]string{
		"DI_RANK": strconv.Itoa(rank), "DI_NODES": strings.Join(all, ","), "DI_JOB_ID": "ns.job.0", "DI_SERVER_URL": "di-server:8080", "NODE_NAME": "node-" + strconv.Itoa(rank),
		"DI_" + strings.ToUpper(workers()[rank]) + "_NODES": strings.Join(mates, ","),
	}, stdout), append([]string{"worker", easyTarget}, args...))
}

// workAll runs all workers except some until they exit.
func (c *cluster) workAll(ctx context.Context, stdout io.Writer, ranks int, args ...string) error {
	results := make([]error, ranks)
	var wait sync.WaitGroup
	for rank := range ranks {
		wait.Go(func() { results[rank] = c.work(ctx, rank, stdout, args...) })
	}
	wait.Wait()
	return errors.Join(results...)
}

func TestWorkersFindEachOtherTrainReportAndAllSucceed(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		out := &output{}
		c.wantReached(out, c.workAll(c.ctx, out, len(workers())))
		posts := c.requested("POST /v2alpha1/job/ns.job.0/profilings ")
		if len(posts) == 0 {
			c.Fatal("nothing was reported")
		}
		last := out.lines[len(out.lines)-1]
		for part, printed := range map[string]string{`"round":`: "round", `"env_steps":`: "steps"} {
			_, rest, _ := strings.Cut(posts[len(posts)-1], part)
			value, _, _ := strings.Cut(strings.TrimSuffix(rest, "}"), ",")
			if !strings.Contains(last, printed+"="+value+" ") {
				c.Errorf("reported %q, want the last round %q", posts[len(posts)-1], last)
			}
		}
	})
}

// reported returns the last report of the workers.
func (c *cluster) reported() *profilings.Report {
	c.Helper()
	posts := c.requested("POST /v2alpha1/job/ns.job.0/profilings ")
	if len(posts) == 0 {
		c.Fatal("nothing was reported")
	}
	_, last, _ := strings.Cut(posts[len(posts)-1], "/profilings ")
	report, err := profilings.Parse([]byte(last))
	expect.NoError(c, err)
	return report
}

func TestAJobThatIsGrownShrunkAndMovedKeepsItsCurveAndReportsEachSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inCluster(t, func(c *cluster) {
		// A unit takes a second, and a round has 8 of them. Each worker has a node of its own.
		args := []string{"--checkpoint=" + dir, "--min-unit=1s"}
		moved, move := context.WithCancel(c.ctx)
		shrunk, shrink := context.WithCancel(moved)
		grow := func() {
			for rank := 4; rank < 6; rank++ {
				c.wait.Go(func() { _ = c.work(shrunk, rank, io.Discard, args...) })
			}
		}
		first := &script{at: []string{"collectors=1 ", "collectors=3 ", "collectors=3 ", "collectors=1 ", "collectors=1 "}}
		first.react = []func(){grow, func() {}, shrink, func() {}, move}
		if code := exitCode(moved, c.workAll(moved, first, 4, args...)); code != exitTerminated {
			c.Fatalf("got exit code %d, want %d", code, exitTerminated)
		}
		second := &output{}
		c.wantReached(second, c.workAll(c.ctx, second, len(workers()), args...))
		if want, _, _ := strings.Cut(first.last, " "); !strings.HasPrefix(second.lines[0], want+" ") {
			c.Errorf("began with %q, want %s", second.lines[0], want)
		}
		seconds := map[int]float64{}
		for _, o := range c.reported().Observations() {
			seconds[o.Replicas] = math.Round(o.Step)
			if o.Nodes != o.Replicas {
				c.Errorf("%d collectors on %d nodes, want each on its own", o.Replicas, o.Nodes)
			}
		}
		if seconds[1] != 8 || seconds[3] != 3 {
			c.Errorf("a round takes %v seconds by collectors, want 8 with one and 3 with three", seconds)
		}
		if noise, has := c.reported().Noise(); !has || noise.Var <= 0 {
			c.Errorf("reported the noise %+v", noise)
		}
		if done := c.reported().Progress.Done; !strings.Contains(second.lines[len(second.lines)-1], fmt.Sprintf(" round=%g ", done)) {
			c.Errorf("reported round %g, want that of %q", done, second.lines[len(second.lines)-1])
		}
	})
}

// script reacts to lines in their order, each after the one before.
type script struct {
	at    []string
	react []func()
	last  string // the last round
}

func (s *script) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(p))
	if strings.HasPrefix(line, "round=") {
		s.last = line
	}
	if len(s.at) > 0 && strings.HasPrefix(line, "round=") && strings.Contains(line, s.at[0]) {
		s.react[0]()
		s.at, s.react = s.at[1:], s.react[1:]
	}
	return len(p), nil
}

func TestAWorkerThatComesLateSucceeds(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		late := len(workers()) - 1
		result := make(chan error, 1)
		out := &output{at: "result=reached", react: func() {
			c.wait.Go(func() { result <- c.work(c.ctx, late, io.Discard) })
		}}
		err := c.workAll(c.ctx, out, late)
		if err := errors.Join(err, <-result); err != nil {
			c.Error(err)
		}
	})
}

func TestWorkersThatAreLostAndReplacedDoNotChangeTheCurve(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		lost := len(workers()) - 1
		ctx, cancel := context.WithCancel(c.ctx)
		c.wait.Go(func() {
			_ = c.work(ctx, lost, io.Discard)
			if err := errors.Join(pause(c.ctx, 10*time.Second), c.work(c.ctx, lost, io.Discard)); err != nil {
				c.Error(err)
			}
		})
		out := &output{at: "collectors=3 ", react: cancel}
		c.wantReached(out, c.workAll(c.ctx, out, lost, "--min-round=5s"))
	})
}

func TestAWorkerFailsWithoutALeader(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		if err := c.work(c.ctx, 4, io.Discard); err == nil || !strings.Contains(err.Error(), "leader: no answer") {
			c.Errorf("got %v, want it to miss the leader", err)
		}
	})
}

func TestATrainingThatIsStoppedContinuesFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(*cluster, context.Context, io.Writer, ...string) error{
		"serial": func(c *cluster, ctx context.Context, stdout io.Writer, args ...string) error {
			return run(ctx, c.process("alone", nil, stdout), append([]string{"serial", easyTarget}, args...))
		},
		"workers": func(c *cluster, ctx context.Context, stdout io.Writer, args ...string) error {
			return c.workAll(ctx, stdout, len(workers()), args...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			inCluster(t, func(c *cluster) {
				ctx, cancel := context.WithCancel(c.ctx)
				first, second := &output{at: "round=5 ", react: cancel}, &output{}
				if code := exitCode(ctx, work(c, ctx, first, "--checkpoint="+dir)); code != exitTerminated {
					c.Fatalf("got exit code %d, want %d", code, exitTerminated)
				}
				c.wantReached(second, work(c, c.ctx, second, "--checkpoint="+dir))
				if !strings.HasPrefix(second.lines[0], "round=5 ") {
					c.Errorf("began with %q, want the round that was saved", second.lines[0])
				}
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					c.Errorf("a training that reached its target leaves %v (%v)", left, err)
				}
			})
		})
	}
}

func TestACheckpointThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for _, content := range []string{`{"round":0}`, `{`} {
		dir := t.TempDir()
		expect.NoError(t, os.WriteFile(filepath.Join(dir, "cartpole.json"), []byte(content), 0o600))
		inCluster(t, func(c *cluster) {
			err := run(c.ctx, c.process("alone", nil, io.Discard), []string{"serial", "--checkpoint=" + dir})
			if err == nil || !strings.Contains(err.Error(), "read checkpoint "+dir) {
				c.Errorf("%s: got %v, want a failure", content, err)
			}
		})
	}
}

func TestACheckpointThatCannotBeSavedIsLogged(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		ctx, cancel := context.WithCancel(c.ctx)
		var log bytes.Buffer
		p := c.process("alone", nil, &output{at: "round=2 ", react: cancel})
		p.log = slog.New(slog.NewTextHandler(&log, nil))
		err := run(ctx, p, []string{"serial", "--checkpoint=" + filepath.Join(c.TempDir(), "missing")})
		if exitCode(ctx, err) != exitTerminated || !strings.Contains(log.String(), "no checkpoint was saved") {
			c.Errorf("got %v and the log %q", err, &log)
		}
	})
}

func TestWrongArgumentsAndEnvironmentsAreErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nodes")
	expect.NoError(t, os.WriteFile(file, []byte("a.s,host.s\n"), 0o600))
	worker := map[string]string{"DI_RANK": "1", "DI_NODES": "@" + file, "DI_LEARNER_NODES": "host.s"}
	with := func(more ...string) map[string]string {
		env := maps.Clone(worker)
		env[more[0]] = more[1]
		return env
	}
	tests := map[string]struct {
		args string
		env  map[string]string
		want string
	}{
		"no role":                {"", nil, "role: got"},
		"unknown role":           {"chef", nil, "role: got"},
		"unknown flag":           {"collector --salt", nil, "not defined"},
		"argument":               {"serial now", nil, "arguments"},
		"no di-server":           {"coordinator", nil, "KUBERNETES_SERVER_URL"},
		"no di-server to unite":  {"aggregator", nil, "KUBERNETES_SERVER_URL"},
		"rank above its world":   {"learner", map[string]string{"WORLD_SIZE": "2", "START_RANK": "2"}, "WORLD_SIZE 2"},
		"a port that is none":    {"learner", map[string]string{"LEARNER_PORT": "x"}, "LEARNER_PORT"},
		"no rank":                {"worker", with("DI_RANK", ""), "DI_RANK"},
		"a rank above all nodes": {"worker", with("DI_RANK", "2"), "below the 2 entries"},
		"another pod's rank":     {"worker", with("DI_RANK", "0"), "want this pod"},
		"nodes without a file":   {"worker", with("DI_NODES", "@/missing"), "DI_NODES"},
		"no task":                {"worker", with("DI_LEARNER_NODES", ""), "task: got"},
		"unknown task":           {"worker --task=chef", worker, "task: got"},
		"not among its task":     {"worker --task=learner", with("DI_LEARNER_NODES", "a.s"), "DI_LEARNER_NODES"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(c *cluster) {
				err := run(c.ctx, c.process("host.s", tc.env, io.Discard), strings.Fields(tc.args))
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					c.Errorf("got %v, want %q", err, tc.want)
				}
			})
		})
	}
}
