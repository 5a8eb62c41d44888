// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight is kubectl di preflight.
package preflight

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/terminal"
	"opendilab.org/di-orchestrator/internal/crdschema"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/upgrade/preflight"
	"opendilab.org/di-orchestrator/internal/validation"
)

const long = `Say what an installation or an upgrade of DI Orchestrator would meet in this cluster,
and change nothing.

Every DIJob and AggregatorConfig is taken through the conversion to the other version
and back, and through the rules of admission. It is said which release is installed,
which objects would lose something, which jobs are of v1.0.0, what of an earlier release
runs and where, which rights you lack, and in which order an installation would go on.

The command ends with 1 where something stops an installation. The chart runs the same
before it changes anything.`

const examples = `  # What would an installation into di-system meet?
  kubectl di preflight

  # Only the names of jobs that have to be carried over by hand
  kubectl di preflight -o json | jq -r '.findings[] | select(.severity == "Stop") | .object'`

// options are the flags of preflight.
type options struct {
	flags     *cluster.Flags
	streams   genericiooptions.IOStreams
	namespace string
	output    *printing.Data
}

// NewCommand returns the command.
func NewCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	options := &options{flags: flags, streams: streams, output: printing.NewData()}
	help := arguments.Help{Use: "preflight", Short: "Report what would block an installation or an upgrade", Long: long, Example: examples}
	command := arguments.NewCommand(help, options.run)
	own := command.Flags()
	own.StringVar(&options.namespace, "server-namespace", names.SystemNamespace, "namespace that DI Orchestrator runs in, or is to run in")
	options.output.Bind(command, "print the report")
	return command
}

func (o *options) run(ctx context.Context) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	found, err := o.flags.Connect()
	if err != nil {
		return err
	}
	schema, err := crdschema.New()
	if err != nil {
		return err
	}
	progress := terminal.NewProgress(o.streams.ErrOut)
	looker := &preflight.Looker{Namespace: o.namespace, Rules: validation.NewRules(schema, validation.Bounds{}), Installing: true}
	if terminal.Width(o.streams.ErrOut) > 0 {
		looker.Progress = func(kind string, done, left int64) {
			progress.State(kind, fmt.Sprintf("%d of %d looked at", done, done+left))
		}
	}
	if err := looker.Connect(found.Config()); err != nil {
		return err
	}
	report, err := looker.Look(ctx)
	progress.End()
	if err != nil {
		return err
	}
	return errors.Join(o.print(report), verdict(report))
}

func (o *options) print(report *preflight.Report) error {
	if o.output.IsText() {
		return report.Print(o.streams.Out)
	}
	return o.output.Print(o.streams.Out, report)
}

// verdict is the error of a report that stops an installation.
func verdict(report *preflight.Report) error {
	if report.Fine {
		return nil
	}
	return exit.With(exit.Failed, fmt.Errorf("findings that stop an installation: %d", report.Count(preflight.Stop)))
}
