// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profilings is kubectl di profilings.
package profilings

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
)

const long = `Print what a worker-led job last reported of itself to di-server.

A job reports by POST of profilings; the last report takes the place of the one
before, and is kept in status.profilings.`

// NewCommand returns the command.
func NewCommand(flags *cluster.Flags) *cobra.Command {
	output := printing.NewData()
	command := &cobra.Command{
		Use:   "profilings JOB",
		Short: "Print what a worker-led job last reported of itself",
		Long:  long,
		Example: `  # What job pong reported last, of which jq takes a part
  kubectl di profilings pong | jq .episodes`,
		Args: arguments.CheckJob,
		RunE: func(command *cobra.Command, args []string) error {
			return printProfilings(command, flags, output, args)
		},
		ValidArgsFunction: arguments.CompleteJob(flags),
	}
	output.Bind(command, "print it")
	return command
}

func printProfilings(command *cobra.Command, flags *cluster.Flags, output *printing.Data, args []string) error {
	name, err := arguments.OneJob(args)
	if err != nil {
		return err
	}
	if err := output.Check(); err != nil {
		return err
	}
	found, err := flags.Connect()
	if err != nil {
		return err
	}
	job, err := found.Job(command.Context(), name)
	if err != nil {
		return err
	}
	if job.Status.Profilings == nil {
		return fmt.Errorf("job %s/%s has reported no profilings", job.Namespace, job.Name)
	}
	return output.Print(command.OutOrStdout(), json.RawMessage(job.Status.Profilings.Raw))
}
