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
	command := arguments.NewJobCommand(flags, arguments.Help{
		Use: "profilings JOB", Short: "Print what a worker-led job last reported of itself", Long: long,
		Example: "  # A part of what job pong reported last\n  kubectl di profilings pong | jq .episodes",
	}, func(command *cobra.Command, job string) error { return printProfilings(command, flags, output, job) })
	output.Bind(command, "print it")
	return command
}

func printProfilings(command *cobra.Command, flags *cluster.Flags, output *printing.Data, name string) error {
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
