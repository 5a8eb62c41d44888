// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/upgrade/preflight"
	"opendilab.org/di-orchestrator/webhook/crdschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

// lookInterval is the delay between retries while the API server does not answer.
const lookInterval = 2 * time.Second

func newPreflightCommand() *cobra.Command {
	options := &installOptions{}
	command := &cobra.Command{
		Use:   "preflight",
		Short: "Report what would block an installation or an upgrade",
		Long: `Takes every stored DIJob and AggregatorConfig through the conversion and the rules
of admission, looks at what an earlier release has left, and says what stops an
installation, such as jobs of v1.0.0. Nothing is changed. It ends with 1 where
something stops it. The chart runs it before install-crds; kubectl di preflight is
the same for people.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), options.timeout)
			defer cancel()
			return runPreflight(ctx, options, cmd.OutOrStdout())
		},
	}
	bindInstallOptions(command, options)
	return command
}

// runPreflight retries until the API server answers, and prints the findings.
func runPreflight(ctx context.Context, options *installOptions, out io.Writer) error {
	inspector, err := newInspector(options.namespace)
	if err != nil {
		return err
	}
	var report *preflight.Report
	var last error
	err = wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (bool, error) {
		report, last = inspector.Inspect(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("looking at the cluster: %w", errors.Join(err, last))
	}
	if err := report.Print(out); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	if !report.Fine {
		return fmt.Errorf("findings that stop an installation: %d; nothing was changed", report.Count(preflight.Stop))
	}
	return nil
}

func newInspector(namespace string) (*preflight.Inspector, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	schema, err := crdschema.New()
	if err != nil {
		return nil, err
	}
	inspector := &preflight.Inspector{Namespace: namespace, Rules: validation.NewRules(schema, validation.Bounds{})}
	return inspector, inspector.Connect(config)
}
