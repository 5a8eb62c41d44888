// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/view"
)

func newShowCommand(env *cli.Env) *cobra.Command {
	o := &reading{Env: env}
	var output cli.Data
	command := o.jobCommand(cli.Help{
		Use: "show JOB", Short: "Show what is recorded of a job, as describe shows a living one",
		Long: `Show all that is recorded of a job on one page: its phases, conditions, placements,
resizes and plans, its attempts and restarts with their causes, its tasks with what they
requested and used at most, and its replicas with their nodes and endings.`,
		Example: `  # Why did job pong fail?
  kubectl di history show pong

  # The manifest that it was created with
  kubectl di history show pong -o json | jq .manifest`,
	}, func(_ context.Context, _ *reader.Reader, found job) error {
		if !output.IsText() {
			return output.Print(env.Out, found)
		}
		var out bytes.Buffer
		view.Of(found, time.Now()).Render(&out)
		_, err := env.Out.Write(out.Bytes())
		return err
	})
	output.Bind(command, "print the record")
	return command
}
