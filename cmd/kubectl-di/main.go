// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-di is a plugin of kubectl: in a folder of PATH, it is run as
// kubectl di.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is stamped by the linker.
var version = "dev"

// Exit codes, which scripts rely on.
const (
	exitFailed = 1
	exitUsage  = 2
	exitLost   = 3
)

// coded is an error that decides about the exit code.
type coded struct {
	error
	code int
}

// Unwrap implements the interface of package errors.
func (c coded) Unwrap() error { return c.error }

func usageError(format string, args ...any) error {
	return coded{fmt.Errorf(format, args...), exitUsage}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, newCommand())
	stop()
	os.Exit(code)
}

// run executes the command and returns the exit code.
func run(ctx context.Context, command *cobra.Command) int {
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(command.ErrOrStderr(), "kubectl-di:", err)
	if with := (coded{}); errors.As(err, &with) {
		return with.code
	}
	return exitFailed
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-di",
		Short:         "Work with the jobs of DI Orchestrator",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl di"},
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return coded{err, exitUsage} })
	root.AddCommand(newAddCommand(), newDeleteCommand(), newRestartCommand(), newConvertCommand(), newVersionCommand())
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(command.OutOrStdout(), version)
			return err
		},
	}
}

// noArguments is cobra.NoArgs with the exit code of wrong use.
func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("%q: %s takes no arguments, only flags", args[0], command.CommandPath())
	}
	return nil
}
