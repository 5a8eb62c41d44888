// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/allocation"
)

// Policies are policies of the allocator by name, as operator.allocator.policy of the configuration selects them.
type Policies map[string]allocation.Policy

// Main runs the program that the command line names, and returns the exit code of the process. The version
// is that of the build. The operator knows the linked policies beside its own.
func Main(version string, linked Policies) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand(version, linked).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "di-orchestrator:", err)
		return 1
	}
	return 0
}

func newCommand(version string, linked Policies) *cobra.Command {
	root := &cobra.Command{
		Use:           "di-orchestrator",
		Short:         "Run distributed reinforcement-learning training on Kubernetes",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return explainMoved(err) })
	root.AddCommand(newOperatorCommand(version, linked), newWebhookCommand(version), newServerCommand(version), newHistoryCommand(version), newPreflightCommand(),
		newInstallCommand(), newRetireCommand(), newReleaseCommand(), newProbeCommand())
	return root
}
