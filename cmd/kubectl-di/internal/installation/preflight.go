// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installation implements the commands about the installation: kubectl di preflight,
// migrate, rotate-ca and version.
package installation

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/preflight"
	"opendilab.org/di-orchestrator/webhook/crdschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

const preflightLong = `Report what would block an installation or an upgrade of DI Orchestrator in this
cluster, and change nothing.

Every DIJob and AggregatorConfig is taken through the conversion to the other version
and back, and through the rules of admission. The report names the release that is
installed, objects that would lose something, jobs of v1.0.0, what of an earlier release
runs and where, rights that you lack, and the order of an installation.

The command ends with 1 where something blocks an installation. The chart runs the same
before it changes anything.`

// NewPreflightCommand returns kubectl di preflight.
func NewPreflightCommand(env *cli.Env) *cobra.Command {
	var namespace string
	var output cli.Data
	command := cli.NewCommand(cli.Help{
		Use: "preflight", Short: "Report what would block an installation or an upgrade", Long: preflightLong,
		Example: `  # What would an installation into di-system meet?
  kubectl di preflight

  # Only the names of jobs that have to be carried over by hand
  kubectl di preflight -o json | jq -r '.findings[] | select(.severity == "Stop") | .object'`,
	}, func(ctx context.Context) error {
		report, err := look(ctx, env, namespace)
		if err != nil {
			return err
		}
		if output.IsText() {
			err = report.Print(env.Out)
		} else {
			err = output.Print(env.Out, report)
		}
		if !report.Fine {
			err = errors.Join(err, fmt.Errorf("findings that stop an installation: %d", report.Count(preflight.Stop)))
		}
		return err
	})
	command.Flags().StringVar(&namespace, "server-namespace", names.SystemNamespace,
		"namespace of DI Orchestrator, also where it is not installed yet")
	output.Bind(command, "print the report")
	return command
}

func look(ctx context.Context, env *cli.Env, namespace string) (*preflight.Report, error) {
	found, err := env.Connect()
	if err != nil {
		return nil, err
	}
	schema, err := crdschema.New()
	if err != nil {
		return nil, err
	}
	progress := cli.NewProgress(env.ErrOut)
	defer progress.End()
	inspector := &preflight.Inspector{Namespace: namespace, Rules: validation.NewRules(schema, validation.Bounds{}), Installing: true}
	if cli.Width(env.ErrOut) > 0 {
		inspector.Progress = func(kind string, done, left int64) {
			progress.State(kind, fmt.Sprintf("%d of %d checked", done, done+left))
		}
	}
	if err := inspector.Connect(found.Config()); err != nil {
		return nil, err
	}
	return inspector.Inspect(ctx)
}
