// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// Help is the text of a command.
type Help struct{ Use, Short, Long, Example string }

func (h Help) command() *cobra.Command {
	command := &cobra.Command{Use: h.Use, Short: h.Short, Long: h.Long, Example: h.Example}
	command.Flags().SortFlags = false
	return command
}

// NewCommand returns a command that takes flags only.
func NewCommand(help Help, run func(context.Context) error) *cobra.Command {
	command := help.command()
	command.Args = None
	command.RunE = func(command *cobra.Command, _ []string) error { return run(command.Context()) }
	return command
}

// NewJobCommand returns a command that takes the name of one job.
func NewJobCommand(flags *cluster.Flags, help Help, run func(command *cobra.Command, job string) error) *cobra.Command {
	command := help.command()
	command.Args = func(_ *cobra.Command, args []string) error {
		_, err := OneJob(args)
		return err
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		job, err := OneJob(args)
		if err != nil {
			return err
		}
		return run(command, job)
	}
	command.ValidArgsFunction = CompleteJob(flags)
	return command
}

// NewJobsCommand returns a command that takes jobs by name or by label. It checks the
// other flags before it reads the jobs, and runs with those that it could read.
func NewJobsCommand(
	flags *cluster.Flags, help Help, check func() error, run func(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error,
) *cobra.Command {
	command := help.command()
	jobs := &Choice{}
	jobs.Bind(command.Flags())
	command.Args = func(_ *cobra.Command, args []string) error {
		_, err := Jobs(args)
		return err
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := jobs.Parse(args); err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
		found, err := flags.Connect()
		if err != nil {
			return err
		}
		read, err := jobs.Read(command.Context(), found)
		return errors.Join(err, run(command.Context(), found, read))
	}
	command.ValidArgsFunction = CompleteJobs(flags)
	return command
}
