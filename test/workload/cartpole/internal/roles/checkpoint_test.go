// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/roles"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/standin"
)

// runSerial trains in one process.
func runSerial(ctx context.Context, stdout io.Writer, args ...string) error {
	return runSerialLogged(ctx, stdout, slog.New(slog.DiscardHandler), args...)
}

func runSerialLogged(ctx context.Context, stdout io.Writer, log *slog.Logger, args ...string) error {
	return roles.Run(ctx, roles.System{
		Getenv: func(string) string { return "" }, Stdout: stdout, Log: log,
		Now: time.Now, Listen: standin.NewNetwork().Host("alone").Listen,
	}, append([]string{"serial", "--target=80"}, args...))
}

// runWorkers runs all workers of a job to their end.
func runWorkers(ctx context.Context, stdout io.Writer, args ...string) error {
	network := standin.NewNetwork()
	results := make([]error, len(workers()))
	var wait sync.WaitGroup
	for rank := range workers() {
		wait.Go(func() { results[rank] = runWorkerOf(ctx, network, rank, stdout, args...) })
	}
	wait.Wait()
	return errors.Join(results...)
}

// curve is what decides a line of output: neither the time nor who took part.
func curve(line string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(line), func(field string) bool {
		key, _, _ := strings.Cut(field, "=")
		return key == "elapsed" || key == "collectors" || key == "learners" || key == "return"
	}), " ")
}

func TestATrainingThatIsStoppedGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	undisturbed := &output{}
	if err := runSerial(t.Context(), undisturbed); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(context.Context, io.Writer, ...string) error{"serial": runSerial, "workers": runWorkers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			stop := &watcher{trigger: "round=5 ", reached: make(chan struct{})}
			go func() { <-stop.reached; cancel() }()
			if err := run(ctx, stop, "--checkpoint="+dir, "--pause-after=5"); roles.ExitCode(err) != roles.ExitTerminated {
				t.Fatalf("got %v, want %v", err, roles.ErrTerminated)
			}
			out := &output{}
			if err := run(t.Context(), out, "--checkpoint="+dir); err != nil {
				t.Fatal(err)
			}
			if first, _, _ := strings.Cut(out.buffer.String(), " "); first != "round=5" {
				t.Errorf("went on with %q, want the round that was saved", first)
			}
			if got, want := curve(out.lastLine()), curve(undisturbed.lastLine()); got != want {
				t.Errorf("got %q, want the undisturbed %q", got, want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("a training that reached its target leaves %v (%v)", left, err)
			}
		})
	}
}

func TestACheckpointThatCannotBeReadIsNotTakenForNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cartpole.json"), []byte(`{"round":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := runSerial(t.Context(), io.Discard, "--checkpoint="+dir); roles.ExitCode(err) != roles.ExitFailed {
		t.Errorf("got %v, want a failure", err)
	}
}

func TestATrainingThatCannotSaveItsCheckpointTellsOfIt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "missing")
	ctx, cancel := context.WithCancel(t.Context())
	stop := &watcher{trigger: "round=2 ", reached: make(chan struct{})}
	go func() { <-stop.reached; cancel() }()
	log := &output{}
	err := runSerialLogged(ctx, stop, slog.New(slog.NewTextHandler(log, nil)), "--checkpoint="+dir, "--pause-after=2")
	if roles.ExitCode(err) != roles.ExitTerminated {
		t.Errorf("got %v, want %v", err, roles.ErrTerminated)
	}
	if !strings.Contains(log.lastLine(), "no checkpoint was saved") {
		t.Errorf("the last line of the log is %q", log.lastLine())
	}
}
