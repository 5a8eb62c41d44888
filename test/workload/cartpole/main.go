// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cartpole is a small, real reinforcement-learning program without
// dependencies. One binary plays all parts of a distributed training job; the
// first argument says which.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/roles"
)

// dialTimeout is short: names and addresses of pods come and go.
const dialTimeout = 3 * time.Second

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 && strings.Contains(args[0], "help") {
		fmt.Printf("usage: cartpole ROLE [flags]\nroles: crash, %s\n", strings.Join(roles.Names(), ", "))
		return roles.ExitReached
	}
	system, err := newSystem()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return roles.ExitFailed
	}
	switch {
	case len(args) > 0 && args[0] == "crash":
		err = crash()
	default:
		err = roles.Run(ctx, system, args)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cartpole:", err)
	}
	return roles.ExitCode(err)
}

// crash ends the first process of the container that it is called in, without
// giving it time for anything: SIGQUIT ends a Go program with a dump of its
// goroutines, while SIGKILL does not reach the first process from inside.
func crash() error {
	if err := syscall.Kill(1, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("crash the container: %w", err)
	}
	return nil
}

func newSystem() (roles.System, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return roles.System{}, fmt.Errorf("host name: %w", err)
	}
	return roles.System{
		Getenv:   os.Getenv,
		Hostname: hostname,
		Stdout:   os.Stdout,
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Now:      time.Now,
		Listen: func(ctx context.Context, port int) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
		},
		Dial: (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}, nil
}
