// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package submit is kubectl di submit.
package submit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/cli-runtime/pkg/resource"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
)

const long = `Submit jobs: create the DIJobs of files, in either version of the API.

Of several jobs all are tried before any is created, so that none is when the API
server refuses one. What it finds wrong is told field by field.

With --watch the command follows what it submitted to the end: phases, replicas
and events.

Exit codes: 0 submitted, and with --watch all have succeeded; 1 refused, or one
has failed, was deleted or is not at its end by --timeout; 2 wrong use.`

const examples = `  # Submit a job, and follow it to its end
  kubectl di submit -f job.yaml --watch

  # Would the API server take all jobs of a folder?
  kubectl di submit -f jobs/ -R --dry-run=server

  # A job from the web, into another namespace
  kubectl di submit -f https://example.com/cartpole.yaml -n rl

  # Import a TFJob, and submit it
  kubectl di convert -f tfjob.yaml --strict | kubectl di submit -f -`

// options are the flags of submit.
type options struct {
	flags      *cluster.Flags
	streams    genericiooptions.IOStreams
	print      *printing.Flags
	files      resource.FilenameOptions
	dryRun     printing.DryRun
	validation string
	watch      bool
	timeout    time.Duration
}

// NewCommand returns the command.
func NewCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	options := &options{flags: flags, streams: streams, print: printing.New("submitted")}
	help := arguments.Help{Use: "submit -f FILE", Short: "Submit jobs, and follow them to their end", Long: long, Example: examples}
	command := arguments.NewCommand(help, options.run)
	command.Aliases = []string{"create"}
	own := command.Flags()
	own.StringArrayVarP(&options.files.Filenames, "filename", "f", nil, "file, folder or URL to read, - for stdin; may be repeated")
	own.StringVarP(&options.files.Kustomize, "kustomize", "k", "", "folder of a kustomization to read")
	own.BoolVarP(&options.files.Recursive, "recursive", "R", false, "read subfolders too")
	own.BoolVarP(&options.watch, "watch", "w", false, "follow the jobs until they end")
	own.DurationVar(&options.timeout, "timeout", 0, "follow for no longer than this; the jobs go on (default as long as it takes)")
	options.dryRun.Bind(own, "submitted")
	own.StringVar(&options.validation, "validate", "strict", "strict refuses fields that the API does not know, warn warns of them, ignore drops them")
	options.print.Bind(command)
	return command
}

// check says what is wrong with the flags.
func (o *options) check() error {
	switch {
	case len(o.files.Filenames) == 0 && o.files.Kustomize == "":
		return exit.Usagef("-f is missing: name a file, a folder, a URL, or - for stdin")
	case len(o.files.Filenames) > 0 && o.files.Kustomize != "":
		return exit.Usagef("-f and -k exclude each other")
	case !slices.Contains([]string{"strict", "warn", "ignore"}, o.validation):
		return exit.Usagef("--validate %q: want strict, warn or ignore", o.validation)
	case o.watch && !o.dryRun.IsReal():
		return exit.Usagef("--watch and --dry-run exclude each other: of a trial there is nothing to follow")
	case o.timeout < 0:
		return exit.Usagef("--timeout %s: want 0 or more", o.timeout)
	case o.timeout > 0 && !o.watch:
		return exit.Usagef("--timeout %s: is for --watch", o.timeout)
	}
	return o.dryRun.Check()
}

func (o *options) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	printer, err := o.print.Printer(o.dryRun.Suffix())
	if err != nil {
		return err
	}
	jobs, err := o.read(ctx)
	if err != nil {
		return err
	}
	found, err := o.flags.Connect()
	if err != nil {
		return err
	}
	if err := o.place(jobs, found.Namespace); err != nil {
		return err
	}
	if err := o.submit(ctx, found, jobs, printer); err != nil || !o.watch {
		return err
	}
	return o.follow(ctx, found, jobs)
}

// place puts jobs that name no namespace into that of the command, which the
// others must not contradict.
func (o *options) place(jobs []written, namespace string) error {
	var failures []error
	for _, job := range jobs {
		switch said := job.GetNamespace(); {
		case said == "":
			job.SetNamespace(namespace)
		case said != namespace && o.flags.HasNamespace():
			failures = append(failures, exit.Usagef("%s: job %q is of namespace %s, and -n says %s: leave out one of them",
				job.source, job.GetName(), said, namespace))
		}
		if job.GetName() == "" && job.GetGenerateName() == "" {
			failures = append(failures, fmt.Errorf("%s: a job has no metadata.name", job.source))
		}
	}
	return errors.Join(failures...)
}

// submit creates the jobs. Of several, all are tried before.
func (o *options) submit(ctx context.Context, found *cluster.Cluster, jobs []written, printer printers.ResourcePrinter) error {
	if len(jobs) > 1 && o.dryRun.IsReal() {
		var failures []error
		for _, job := range jobs {
			trial := written{job.DeepCopy(), job.source}
			failures = append(failures, o.create(ctx, found, trial, true))
		}
		if err := errors.Join(failures...); err != nil {
			return fmt.Errorf("%w\nnothing was submitted", err)
		}
	}
	var failures []error
	for _, job := range jobs {
		if !o.dryRun.IsSaid() {
			if err := o.create(ctx, found, job, !o.dryRun.IsReal()); err != nil {
				failures = append(failures, err)
				continue
			}
		}
		failures = append(failures, printer.PrintObj(job.Unstructured, o.streams.Out))
	}
	return errors.Join(failures...)
}

func (o *options) create(ctx context.Context, found *cluster.Cluster, job written, trial bool) error {
	validation := map[string]string{
		"strict": metav1.FieldValidationStrict, "warn": metav1.FieldValidationWarn, "ignore": metav1.FieldValidationIgnore,
	}[o.validation]
	if err := found.Submit(ctx, job.Unstructured, validation, trial); err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(job.source), err)
	}
	return nil
}
