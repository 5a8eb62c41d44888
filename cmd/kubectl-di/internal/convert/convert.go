// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert implements kubectl di convert, which needs no cluster.
package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
)

const convertLong = `Convert manifests between the versions of DI Orchestrator's API, and import
manifests of its ancestors and of kubeflow, without a cluster. The conversion is
the one that the API server asks DI Orchestrator's webhook for.

Converted are
  DIJob and AggregatorConfig    diengine.opendilab.org/v1alpha1 and v2alpha1
Imported are
  TFJob, PyTorchJob, MPIJob     kubeflow.org/v1
  MPIJob                        kubeflow.org/v2beta1
  TrainJob                      trainer.kubeflow.org/v1alpha1
  NerveXJob, AggregatorConfig   nervex.sensetime.com/v1alpha1
  DIJob, AggregatorConfig       diengine.sensetime.com/v1alpha1
  DIJob                         of release v1.0.0, which has spec.template

Files may be YAML of several documents, JSON, and lists. All other objects stay
as they are, byte for byte. The report says of jobs of other operators that they
are not imported, and with --strict the command fails. Comments, order of keys,
quoting, numbers and anchors stay where they were, or move with what they are
about.

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

// NewCommand returns kubectl di convert.
func NewCommand(env *cli.Env) *cobra.Command {
	options := &convertOptions{}
	command := cli.NewCommand(cli.Help{
		Use: "convert -f FILE", Short: "Convert and import manifests, without a cluster", Long: convertLong, Example: convertExamples,
	}, func(ctx context.Context) error { return options.run(ctx, env.In, env.Out, env.ErrOut) })
	flags := command.Flags()
	flags.StringArrayVarP(&options.files, "filename", "f", nil, "file or folder to read, - for stdin; may be repeated")
	flags.BoolVarP(&options.recursive, "recursive", "R", false, "read subfolders too")
	cli.Enum(command, &options.to, "to", "", v2alpha1.Version, "version to convert to: v1alpha1 or v2alpha1", v1alpha1.Version,
		v2alpha1.Version)
	cli.Enum(command, &options.output, "output", "o", "", "yaml or json; by default each document stays what it is", formatYAML, formatJSON)
	flags.StringVar(&options.outputDir, "output-dir", "", "folder to write the files to, instead of stdout")
	flags.BoolVarP(&options.inPlace, "in-place", "w", false, "write the files back, instead of to stdout")
	flags.BoolVar(&options.strict, "strict", false, "fail when anything cannot be carried over")
	cli.Before(command, options.check)
	return command
}

// check returns an error for invalid flags.
func (o *convertOptions) check() error {
	if len(o.files) == 0 {
		return cli.Usagef("-f is missing: name a file, a folder, or - for stdin")
	}
	if o.inPlace && o.outputDir != "" {
		return cli.Usagef("--in-place and --output-dir exclude each other")
	}
	if o.inPlace && o.output != "" {
		return cli.Usagef("--in-place and -o exclude each other: a file stays what it is")
	}
	return nil
}

const (
	formatYAML = "yaml"
	formatJSON = "json"
)

var errInterrupted = errors.New("interrupted: nothing was written")

// run converts all inputs before it writes any output.
func (o *convertOptions) run(ctx context.Context, in io.Reader, out, report io.Writer) error {
	inputs, err := readInputs(ctx, o.files, o.recursive, in)
	if err != nil {
		return err
	}
	if err := o.checkInputs(inputs); err != nil {
		return err
	}
	outputs, lost, err := o.convertFiles(inputs, report)
	if err != nil {
		return fmt.Errorf("%w\nnothing was written", err)
	}
	if lost > 0 && o.strict {
		return cli.With(cli.Lost, fmt.Errorf("not carried over: %d, see above; nothing was written, as --strict asks", lost))
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return o.write(outputs, out)
}

// convertFiles converts and reports on all inputs, and counts the fields and jobs that could not be
// converted. Its error joins all failures.
func (o *convertOptions) convertFiles(inputs []input, report io.Writer) (outputs []output, lost int, err error) {
	var failures []error
	for i := range inputs {
		converted, reports, err := o.convertFile(&inputs[i])
		failures = append(failures, err)
		outputs = append(outputs, output{input: &inputs[i], content: converted})
		for j := range reports {
			lost += len(reports[j].lost)
			if reports[j].isNotImported {
				lost++
			}
			reports[j].write(report)
		}
	}
	return outputs, lost, errors.Join(failures...)
}

func (o *convertOptions) checkInputs(inputs []input) error {
	for i := range inputs {
		if inputs[i].path == "" && o.inPlace {
			return cli.Usagef("--in-place: stdin has no place to be written back to")
		}
	}
	return nil
}

// apiVersion returns the target version.
func (o *convertOptions) apiVersion() string {
	return v2alpha1.GroupName + "/" + o.to
}

// convertFile converts the documents of a file.
func (o *convertOptions) convertFile(file *input) ([]byte, []documentReport, error) {
	if err := manifests.CheckEncoding(file.content); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file.name, err)
	}
	var (
		out      strings.Builder
		reports  []documentReport
		failures []error
	)
	content, marked := bytes.CutPrefix(file.content, []byte(manifests.ByteOrderMark))
	number := 0
	for _, part := range manifests.Split(content) {
		if part.IsEmpty() {
			out.WriteString(part.Separator + part.Body + part.End)
			continue
		}
		number++
		at := fmt.Sprintf("%s: document %d (line %d)", file.name, number, part.Line)
		body, found, err := o.convertPart(&part)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", at, err))
			continue
		}
		for i := range found {
			found[i].at = at
		}
		reports = append(reports, found...)
		writePart(&out, &part, body, number > 1)
	}
	if number == 0 {
		reports = []documentReport{{at: file.name, became: "holds no document"}}
	}
	if marked {
		return []byte(manifests.ByteOrderMark + out.String()), reports, errors.Join(failures...)
	}
	return []byte(out.String()), reports, errors.Join(failures...)
}

// writePart appends a document. A changed one starts on a new line, and YAML after another document
// gets a separator.
func writePart(out *strings.Builder, part *manifests.Part, body string, follows bool) {
	separator, end := part.Separator, part.End
	if body != part.Body {
		if text := out.String(); text != "" && !strings.HasSuffix(text, "\n") {
			out.WriteByte('\n')
		}
		if separator != "" && !strings.HasSuffix(separator, "\n") {
			separator = strings.TrimRight(separator, " \t") + "\n"
		}
		if separator == "" && follows && !strings.HasPrefix(body, "{") {
			separator = "---\n"
		}
	}
	if strings.HasPrefix(body, "{") && body != part.Body {
		end = "" // JSON needs no terminator.
	}
	out.WriteString(separator + body + end)
}
