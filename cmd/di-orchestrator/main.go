// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command di-orchestrator contains the programs of DI Orchestrator in one binary: the operator (the
// controllers), the webhooks, and di-server.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "di-orchestrator:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "di-orchestrator",
		Short:         "Run distributed reinforcement-learning training on Kubernetes",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newOperatorCommand(), newWebhookCommand(), newServerCommand(), newPreflightCommand(), newInstallCommand(), newRetireCommand(), newProbeCommand())
	return root
}
