// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// stopTimeout is the timeout for requests in flight when a process ends.
const stopTimeout = 5 * time.Second

// process contains the interfaces to the machine that a role uses.
type process struct {
	getenv   func(string) string
	hostname string
	stdout   io.Writer
	log      *slog.Logger
	listen   func(ctx context.Context, port int) (net.Listener, error)
	client   *http.Client
}

// parse reads the flags of a role, which takes no other arguments.
func (p *process) parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(p.stdout)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("arguments: got %q, want flags only", flags.Args())
	}
	return nil
}

// number reads a whole number from the environment.
func (p *process) number(key string, fallback int) (int, error) {
	text := p.getenv(key)
	if text == "" {
		return fallback, nil
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 {
		return 0, fmt.Errorf("%s: got %q, want a whole number", key, text)
	}
	return value, nil
}

// errDone ends a process that has finished its work.
var errDone = errors.New("done")

// run serves ports while it does the work of a role. The first work that ends or fails ends all.
func (p *process) run(ctx context.Context, ports map[int]http.Handler, works ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for port, handler := range ports {
		group.Go(func() error { return p.serve(ctx, port, handler) })
	}
	for _, work := range works {
		group.Go(func() error {
			if err := work(ctx); err != nil {
				return err
			}
			return errDone
		})
	}
	if err := group.Wait(); !errors.Is(err, errDone) {
		return err
	}
	return nil
}

// serve serves a port until ctx ends, then waits for the requests in flight.
func (p *process) serve(ctx context.Context, port int, handler http.Handler) error {
	listener, err := p.listen(ctx, port)
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: callTimeout}
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(stopped)
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := server.Shutdown(stopping); err != nil {
			p.log.Warn("requests were cut off", "port", port, "error", errors.Join(err, server.Close()))
		}
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on port %d: %w", port, err)
	}
	<-stopped
	return ctx.Err()
}

// pause returns after d, or with an error if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
