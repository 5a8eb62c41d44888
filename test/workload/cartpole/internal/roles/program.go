// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roles turns a process into one of the program's roles: it reads flags
// and environment, opens ports, finds the other processes and keeps in touch
// with them. What they do together is in the packages below.
package roles

import (
	"bytes"
	"context"
	"errors"
	"flag"
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
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
)

// Exit codes of the program.
const (
	ExitReached    = 0
	ExitFailed     = 1
	ExitUsage      = 2
	ExitMissed     = 3
	ExitTerminated = 143
)

// Errors that decide the exit code.
var (
	// ErrMissed means that training ended without reaching its target.
	ErrMissed = errors.New("target not reached")
	// ErrTerminated means that the process was asked to stop.
	ErrTerminated = errors.New("terminated")
	// ErrUsage means that arguments or environment are wrong.
	ErrUsage = errors.New("usage")
)

// System is what a process needs of the machine that it runs on.
type System struct {
	Getenv   func(string) string
	Hostname string
	Stdout   io.Writer
	Log      *slog.Logger
	Now      func() time.Time
	Listen   func(ctx context.Context, port int) (net.Listener, error)
	Dial     peer.DialFunc
}

// role runs until its work is done or ctx ends.
type role func(ctx context.Context, system System, args []string) error

func roles() map[string]role {
	return map[string]role{
		"serial":      runSerial,
		"coordinator": runCoordinator,
		"collector":   runCollector,
		"learner":     runLearner,
		"ddp-learner": runDDPLearner,
		"aggregator":  runAggregator,
		"worker":      runWorker,
		"dist":        runDist,
	}
}

// Names lists the roles.
func Names() []string {
	return slices.Sorted(maps.Keys(roles()))
}

// Run is the process of the role that the first argument names. It ends without
// error when the role's work is done.
func Run(ctx context.Context, system System, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: role: got none, want one of %s", ErrUsage, strings.Join(Names(), ", "))
	}
	run, ok := roles()[args[0]]
	if !ok {
		return fmt.Errorf("%w: role: got %q, want one of %s", ErrUsage, args[0], strings.Join(Names(), ", "))
	}
	system.Log = system.Log.With("role", args[0])
	err := run(ctx, system, args[1:])
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrTerminated, err)
	}
	return err
}

// ExitCode is the exit code for an error.
func ExitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return ExitReached
	case errors.Is(err, ErrMissed):
		return ExitMissed
	case errors.Is(err, ErrTerminated):
		return ExitTerminated
	case errors.Is(err, ErrUsage):
		return ExitUsage
	default:
		return ExitFailed
	}
}

// Parse reads the flags of a role, which takes no other arguments.
func (s System) Parse(flags *flag.FlagSet, args []string) error {
	var usage bytes.Buffer
	flags.SetOutput(&usage)
	if err := flags.Parse(args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		if _, err := usage.WriteTo(s.Stdout); err != nil {
			return fmt.Errorf("print usage: %w", err)
		}
		return flag.ErrHelp
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: arguments: got %q, want flags only", ErrUsage, flags.Args())
	}
	return nil
}

// integer reads a whole number from the environment.
func (s System) integer(key string, fallback int) (int, error) {
	text := s.Getenv(key)
	if text == "" {
		return fallback, nil
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 {
		return 0, fmt.Errorf("%w: %s: got %q, want a whole number", ErrUsage, key, text)
	}
	return value, nil
}

// required reads a variable that must be there.
func (s System) required(key string) (string, error) {
	value := s.Getenv(key)
	if value == "" {
		return "", fmt.Errorf("%w: %s: not set", ErrUsage, key)
	}
	return value, nil
}

// name is what the process calls itself.
func (s System) name() string {
	if pod := s.Getenv("KUBERNETES_POD_NAME"); pod != "" {
		return pod
	}
	return s.Hostname
}

// httpClient calls di-server.
func (s System) httpClient(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: s.Dial}}
}

// crew is a set of goroutines that live and end together.
type crew struct {
	ctx    context.Context //nolint:containedctx // the common life of the goroutines
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup
}

// errDone ends a crew whose work is done.
var errDone = errors.New("done")

// newCrew returns a crew and the context that it lives by.
func newCrew(ctx context.Context) (context.Context, *crew) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &crew{ctx: ctx, cancel: cancel}
}

// start runs one member. The first one that fails ends the crew.
func (c *crew) start(run func(ctx context.Context) error) {
	c.wait.Go(func() {
		if err := run(c.ctx); err != nil && c.ctx.Err() == nil {
			c.cancel(err)
		}
	})
}

// serve has a member answer requests on a port.
func (c *crew) serve(system System, port int, handler http.Handler) error {
	listener, err := system.Listen(c.ctx, port)
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	c.start(func(ctx context.Context) error { return peer.Serve(ctx, listener, handler) })
	return nil
}

// stop ends the crew for the given reason, waits for all of its members and
// returns the reason that came first; done work is none.
func (c *crew) stop(reason error) error {
	if reason == nil {
		reason = errDone
	}
	c.cancel(reason)
	c.wait.Wait()
	if cause := context.Cause(c.ctx); !errors.Is(cause, errDone) {
		return cause
	}
	return nil
}

// join waits for the crew's end and returns its reason.
func (c *crew) join() error {
	<-c.ctx.Done()
	return c.stop(nil)
}

// pause returns after d, or with an error when ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
