// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
)

func newCostCommand(env *cli.Env) *cobra.Command {
	o := &reading{Env: env}
	var prices cost.Prices
	var output cli.Data
	command := o.jobCommand(cli.Help{
		Use: "cost JOB", Short: "Print what all recorded replicas of a job requested for as long as they ran",
		Example: `  # What did job pong take, and what does that come to?
  kubectl di history cost pong --price gpu=2.10`,
	}, func(_ context.Context, _ *reader.Reader, found job) error {
		return cost.OfRecord(found, time.Now()).Print(env, &output, prices)
	})
	prices.Bind(command)
	output.Bind(command, "print the cost")
	return command
}
