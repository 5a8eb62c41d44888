// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
)

// NewProfilingsCommand returns kubectl di profilings.
func NewProfilingsCommand(env *cli.Env) *cobra.Command {
	var output cli.Data
	command := env.NewJobCommand(cli.Help{
		Use: "profilings JOB", Short: "Print what a job last reported of itself",
		Long: `Print what a job last reported of itself to di-server.

A job reports by POST of profilings; the last report replaces the previous one, and is
kept in status.profilings.`,
		Example: "  # A part of what job pong reported last\n  kubectl di profilings pong | jq .episodes",
	}, func(ctx context.Context, name string) error {
		_, job, err := env.ConnectJob(ctx, name)
		if err != nil {
			return err
		}
		if job.Status.Profilings == nil {
			return fmt.Errorf("job %s/%s has reported no profilings", job.Namespace, job.Name)
		}
		return output.Print(env.Out, json.RawMessage(job.Status.Profilings.Raw))
	})
	output.Bind(command, "print it")
	return command
}
