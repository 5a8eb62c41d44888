// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cartpole is the training program of the end-to-end tests. One binary implements all roles
// of a distributed training job. The first argument is the role.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dialTimeout is short because names and addresses of pods change.
const dialTimeout = 3 * time.Second

// exitTerminated is the exit code of a process that was terminated.
const exitTerminated = 143

// role runs until its work is done or ctx ends.
type role func(ctx context.Context, p *process, args []string) error

func roles() map[string]role {
	return map[string]role{
		"serial":      runSerial,
		"coordinator": runCoordinator,
		"collector":   runCollector,
		"learner":     runLearner,
		"aggregator":  runAggregator,
		"worker":      runWorker,
		"dist":        runDist,
		"crash":       runCrash,
		"memory":      runMemory,
		"wait":        runWait,
		"exit":        runExit,
		"call":        runCall,
		"paramserver": runParamServer,
		"pusher":      runPusher,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exitCode(ctx, run(ctx, newProcess(), os.Args[1:]))
	stop()
	os.Exit(code)
}

// run runs the role that the first argument names.
func run(ctx context.Context, p *process, args []string) error {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	role, ok := roles()[name]
	if !ok {
		return fmt.Errorf("role: got %q, want one of %s", name, strings.Join(slices.Sorted(maps.Keys(roles())), ", "))
	}
	p.log = p.log.With("role", name)
	return role(ctx, p, args[1:])
}

func exitCode(ctx context.Context, err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(os.Stderr, "cartpole:", err)
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	if ctx.Err() != nil {
		return exitTerminated
	}
	return 1
}

func newProcess() *process {
	hostname, _ := os.Hostname() // if it is missing, the check of a worker's rank fails
	return &process{
		getenv:   os.Getenv,
		hostname: hostname,
		stdout:   os.Stdout,
		log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
		listen: func(ctx context.Context, port int) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
		},
		client: &http.Client{Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, DisableKeepAlives: true,
		}},
	}
}

// runCrash kills the first process of its container: SIGQUIT ends a Go program, while SIGKILL does
// not reach the first process from inside.
func runCrash(context.Context, *process, []string) error {
	if err := syscall.Kill(1, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("crash the container: %w", err)
	}
	return nil
}

// runMemory uses an amount of memory, in MiB, and succeeds if it gets it.
func runMemory(_ context.Context, p *process, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("memory: got %d arguments, want the amount in MiB", len(args))
	}
	amount, err := strconv.Atoi(args[0])
	if err != nil || amount < 1 || amount > 4096 {
		return fmt.Errorf("memory: got %q, want an amount from 1 to 4096 MiB", args[0])
	}
	used := make([]byte, amount<<20)
	for i := 0; i < len(used); i += os.Getpagesize() {
		used[i] = byte(i | 1)
	}
	p.log.Info("Used memory", "bytes", len(used), "last", used[len(used)-os.Getpagesize()])
	return nil
}
