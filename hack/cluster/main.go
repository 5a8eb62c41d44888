// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command cluster runs a real Kubernetes on a bare Linux machine: no container
// engine, no registry and no downloads but Go modules and at most two small
// Debian packages. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if unsuitable := (machine.UnsuitableError{}); errors.As(err, &unsuitable) || errors.Is(err, errForeign) || errors.Is(err, errForeignNode) {
		return exitUnsuitable
	}
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
