// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert is kubectl di convert, which needs no cluster.
package convert

import (
	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

const convertLong = `Convert manifests between the versions of DI Orchestrator's API, and import
manifests of its ancestors and of kubeflow, without a cluster. The conversion is
the one that the API server asks DI Orchestrator's webhook for.

Converted are
  DIJob and AggregatorConfig    diengine.opendilab.org/v1alpha1 and v2alpha1
Imported are
  TFJob, PyTorchJob             kubeflow.org/v1
  NerveXJob, AggregatorConfig   nervex.sensetime.com/v1alpha1
  DIJob, AggregatorConfig       diengine.sensetime.com/v1alpha1
  DIJob                         of release v1.0.0, which has spec.template

Files may be YAML of several documents, JSON, and lists. All other objects stay
as they are, byte for byte. Comments, order of keys, quoting, numbers and anchors
stay where they were, or move with what they are about.

The result goes to stdout, a report to stderr: what each object became, what of
it could not be carried over, and what else there is to know. When anything fails
nothing is written.

Exit codes: 0 converted, 1 failed, 2 wrong use, 3 something could not be carried
over and --strict is set.`

const convertExamples = `  # See what jobs of v1alpha1 look like in v2alpha1
  kubectl di convert -f jobs.yaml

  # Convert all manifests of a folder and its subfolders in place
  kubectl di convert -f deploy/ -R --in-place

  # Import a TFJob, and submit it only if nothing of it is lost
  kubectl get tfjob mnist -o yaml | kubectl di convert -f - --strict | kubectl apply -f -

  # Keep the originals
  kubectl di convert -f deploy/ -R --output-dir converted/`

// convertOptions are the flags of convert.
type convertOptions struct {
	files     []string
	recursive bool
	to        string
	output    string
	outputDir string
	inPlace   bool
	strict    bool
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	options := &convertOptions{}
	command := &cobra.Command{
		Use:     "convert -f FILE",
		Short:   "Convert and import manifests, without a cluster",
		Long:    convertLong,
		Example: convertExamples,
		Args:    arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command.Context(), command.InOrStdin(), command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&options.files, "filename", "f", nil, "file or folder to read, - for stdin; may be repeated")
	flags.BoolVarP(&options.recursive, "recursive", "R", false, "read subfolders too")
	flags.StringVar(&options.to, "to", v2alpha1.Version, "version to convert to: v1alpha1 or v2alpha1")
	flags.StringVarP(&options.output, "output", "o", "", "yaml or json; by default each document stays what it is")
	flags.StringVar(&options.outputDir, "output-dir", "", "folder to write the files to, instead of stdout")
	flags.BoolVarP(&options.inPlace, "in-place", "w", false, "write the files back, instead of to stdout")
	flags.BoolVar(&options.strict, "strict", false, "fail when anything cannot be carried over")
	return command
}

// check says what is wrong with the flags.
func (o *convertOptions) check() error {
	if len(o.files) == 0 {
		return exit.Usagef("-f is missing: name a file, a folder, or - for stdin")
	}
	if o.to != "v1alpha1" && o.to != v2alpha1.Version {
		return exit.Usagef("--to %q: want v1alpha1 or v2alpha1", o.to)
	}
	if o.output != "" && o.output != formatYAML && o.output != formatJSON {
		return exit.Usagef("-o %q: want yaml or json", o.output)
	}
	if o.inPlace && o.outputDir != "" {
		return exit.Usagef("--in-place and --output-dir exclude each other")
	}
	if o.inPlace && o.output != "" {
		return exit.Usagef("--in-place and -o exclude each other: a file stays what it is")
	}
	return nil
}
