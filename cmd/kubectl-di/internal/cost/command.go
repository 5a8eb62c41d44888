// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
)

// options are the flags of the command.
type options struct {
	*cli.Env
	prices Prices
	output cli.Data
}

// NewCommand returns kubectl di cost.
func NewCommand(env *cli.Env) *cobra.Command {
	o := &options{Env: env}
	command := env.NewJobCommand(cli.Help{
		Use: "cost JOB", Short: "Print what the pods of a job requested for as long as they ran",
		Long: `Print the hours of GPUs, CPUs and memory that the pods of a job requested for as long as
they ran. It knows the pods that still exist: kubectl di history cost knows all.`,
		Example: `  # What has job pong taken?
  kubectl di cost pong

  # What does that come to?
  kubectl di cost pong --price gpu=2.10 --price cpu=0.04`,
	}, o.run)
	command.SuggestFor = []string{"price", "usage"}
	o.prices.Bind(command)
	o.output.Bind(command, "print the cost")
	return command
}

func (o *options) run(ctx context.Context, name string) error {
	found, job, err := o.ConnectJob(ctx, name)
	if err != nil {
		return err
	}
	pods, err := found.Pods(ctx, job)
	if err != nil {
		return err
	}
	return OfPods(pods, time.Now()).Print(o.Env, &o.output, o.prices)
}
