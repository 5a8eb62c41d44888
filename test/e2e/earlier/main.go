// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command earlier replaces the programs of earlier releases, whose images are not available where
// the tests run. It does not reconcile: it waits for its termination. On request it answers every
// call as di-server of v0.2.2 did for one job with constant replicas. Like those programs it exits
// immediately on termination, unless a flag forbids it. It can also run clients that call di-server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "earlier:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("earlier", flag.ContinueOnError)
	listen := flags.String("listen", "", "address to serve on; empty only waits")
	namespace := flags.String("namespace", "", "namespace of the job")
	coordinator := flags.String("coordinator", "", "pod of the job's coordinator")
	collectors := flags.String("collectors", "", "URLs of its collectors, separated by commas")
	call := flags.String("call", "", "URLs to call instead, separated by commas, until /stop is called, which tells what came of it")
	keep := flags.Bool("keep", false, "also call each over a kept connection")
	untilKilled := flags.Bool("until-killed", false, "answer until the process is killed, as di-server of v1.1 did, which a termination does not end")
	every := flags.Duration("every", 50*time.Millisecond, "how often to call each")
	learners := flags.String("learners", "", "URLs of its learners, separated by commas")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the command line: %w", err)
	}
	if *listen == "" {
		<-ctx.Done()
		return nil
	}
	if *call != "" {
		return callAll(ctx, *listen, list(*call), *keep, *every)
	}
	answer, err := json.Marshal(map[string]any{
		"success": true, "code": 0, "message": "successfully get replicas", "data": map[string]any{
			"namespace": *namespace, "coordinator": *coordinator, "collectors": list(*collectors), "learners": list(*learners),
		},
	})
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if *untilKilled {
		ctx = context.WithoutCancel(ctx)
	}
	return serve(ctx, *listen, answer)
}

func list(urls string) []string {
	if urls == "" {
		return []string{}
	}
	return strings.Split(urls, ",")
}

// serve sends the same answer to all requests until its termination.
func serve(ctx context.Context, address string, answer []byte) error {
	return listen(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// The client may have disconnected.
		_, _ = w.Write(answer)
	}))
}

// listen serves until its termination and does not wait for requests in flight.
func listen(ctx context.Context, address string, handler http.Handler) error {
	server := &http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Handler: handler}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return <-stopped
}
