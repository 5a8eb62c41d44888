// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jobs implements the commands about whole jobs, except for logs and top.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
)

// submitting are the flags of submit.
type submitting struct {
	creating
	files resource.FilenameOptions
	// withObjects also creates the objects of the files that are no jobs.
	withObjects bool
}

// NewSubmitCommand returns kubectl di submit.
func NewSubmitCommand(env *cli.Env) *cobra.Command {
	o := &submitting{creating: creating{Env: env}}
	command := cli.NewCommand(cli.Help{
		Use: "submit -f FILE", Short: "Submit jobs, and follow them to their end",
		Long: `Submit jobs: create the DIJobs of files, in either version of the API.

Of several jobs all are tried before any is created, so that none is when the API
server refuses one. Its findings are printed field by field.

With --check the API server tries the jobs and a pod of each task, as the operator
would create it, and nothing is created. It reports what quota, Pod Security,
policies and the validation of pods refuse, by the fields of the manifest. It needs
the right to create pods.

Files may have other objects, such as the PersistentVolumeClaim of a job. They are
skipped, and stderr names them. With --with-objects they are created before the
jobs; one that exists stays as it is.

With --watch the command follows what it submitted to the end: phases, replicas,
events, and the log of the first replica, which is that of rank 0 or the coordinator. With --fail-on-stall it ends when one is stuck, as by an image that cannot
be pulled, and says what would let it run.

Exit codes: 0 submitted, and with --watch all have succeeded; 1 refused, or one
has failed, is stuck or was deleted; 2 wrong use; 124 --timeout ended the watch.`,
		Example: `  # Submit a job, and follow it to its end
  kubectl di submit -f job.yaml --watch

  # In a pipeline: give up soon if a mistake keeps it from running
  kubectl di submit -f job.yaml --watch --timeout 2h --fail-on-stall 5m

  # Would the API server take all jobs of a folder?
  kubectl di submit -f jobs/ -R --dry-run=server

  # Would its pods be created, too?
  kubectl di submit --check -f job.yaml

  # A recipe: the job, with the volume and the program that it needs
  kubectl di submit -f examples/sb3/ppo.yaml --with-objects --watch

  # A job from the web, into another namespace
  kubectl di submit -f https://example.com/cartpole.yaml -n rl

  # Import a TFJob, and submit it
  kubectl di convert -f tfjob.yaml --strict | kubectl di submit -f -`,
	}, o.run)
	command.Aliases = []string{"create"}
	command.Args = noFile
	flags := command.Flags()
	flags.StringArrayVarP(&o.files.Filenames, "filename", "f", nil, "file, folder or URL to read, - for stdin; may be repeated")
	flags.StringVarP(&o.files.Kustomize, "kustomize", "k", "", "folder of a kustomization to read")
	flags.BoolVarP(&o.files.Recursive, "recursive", "R", false, "read subfolders too")
	flags.BoolVar(&o.withObjects, "with-objects", false, "create the other objects of the files, too, before the jobs")
	flags.BoolVar(&o.checkPods, "check", false, "try the jobs and a pod of each task, and create nothing")
	cli.Enum(command, &o.validation, "validate", "", "strict",
		"strict refuses fields that the API does not know, warn warns about them, ignore drops them",
		"strict", "warn", "ignore")
	cli.Before(command, func() error { return o.implyDryRun(flags) })
	o.bind(command)
	cli.Before(command, o.check)
	return command
}

// implyDryRun makes --check a dry run.
func (o *submitting) implyDryRun(flags *pflag.FlagSet) error {
	switch {
	case o.watch && o.checkPods:
		return cli.Usagef("--watch and --check exclude each other: a check leaves nothing to follow")
	case !o.checkPods || flags.Changed("dry-run"):
		return nil
	}
	o.objects.Say("checked, and not created")
	return flags.Set("dry-run", "server")
}

// noFile refuses arguments. A file is the likely one.
func noFile(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usagef("%q: files are named by -f: %s -f %s", args[0], command.CommandPath(), args[0])
	}
	return nil
}

func (o *submitting) check() error {
	switch {
	case len(o.files.Filenames) == 0 && o.files.Kustomize == "":
		return cli.Usagef("-f is missing: name a file, a folder, a URL, or - for stdin")
	case len(o.files.Filenames) > 0 && o.files.Kustomize != "":
		return cli.Usagef("-f and -k exclude each other")
	case o.checkPods && (o.objects.IsReal() || o.objects.IsLocal()):
		return cli.Usagef("--check is a dry run of the API server: leave out --dry-run")
	}
	return nil
}

func (o *submitting) run(ctx context.Context) error {
	found, err := o.read(ctx)
	if err != nil {
		return err
	}
	if o.withObjects {
		o.others = found.others
	} else {
		for _, other := range found.others {
			fmt.Fprintf(o.ErrOut, "kubectl-di: %s: %s %q is no DIJob and is skipped; --with-objects creates it\n",
				strings.TrimSpace(other.source), other.GetKind(), other.GetName())
		}
	}
	return o.create(ctx, found.jobs)
}

// contents are the objects of files.
type contents struct{ jobs, others []manifest }

// read reads the files. It returns when the context ends, even if stdin blocks.
func (o *submitting) read(ctx context.Context) (found contents, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		found, err = o.parse()
	}()
	select {
	case <-ctx.Done():
		return contents{}, errors.New("interrupted: nothing was submitted")
	case <-done:
		return found, err
	}
}

// parse reads the files, and fails if they have no job.
func (o *submitting) parse() (contents, error) {
	const stdin = "-"
	builder := resource.NewLocalBuilder().Unstructured().Flatten().ContinueOnError()
	files := o.files
	files.Filenames = slices.DeleteFunc(slices.Clone(o.files.Filenames), func(name string) bool { return name == stdin })
	if len(files.Filenames) < len(o.files.Filenames) {
		builder = builder.Stream(io.NopCloser(o.In), "stdin")
	}
	if len(files.Filenames) > 0 || files.Kustomize != "" {
		builder = builder.FilenameParam(false, &files)
	}
	var found contents
	var failures []error
	err := builder.Do().Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		object, isJob, err := objectOf(info)
		if failures = append(failures, err); isJob {
			found.jobs = append(found.jobs, object)
		} else {
			found.others = append(found.others, object)
		}
		return nil // Reports the errors of all.
	})
	if err = errors.Join(append(failures, err)...); err != nil {
		return contents{}, fmt.Errorf("%w\nnothing was submitted", err)
	}
	return found, found.check()
}

// check returns an error if there is no job.
func (c *contents) check() error {
	if len(c.jobs) > 0 {
		return nil
	}
	if len(c.others) == 0 {
		return errors.New("the input has no DIJob: nothing was submitted")
	}
	var failures []error
	for _, other := range c.others {
		failures = append(failures, fmt.Errorf("%s: %s %q is no DIJob: create it by kubectl apply", other.source, other.GetKind(), other.GetName()))
	}
	return fmt.Errorf("%w\nnothing was submitted", errors.Join(failures...))
}

// objectOf returns the object in a resource, and reports whether it is a job. It refuses what is meant to be a job and is none.
func objectOf(info *resource.Info) (object manifest, isJob bool, err error) {
	content, isUnstructured := info.Object.(*unstructured.Unstructured)
	if !isUnstructured {
		return manifest{}, false, fmt.Errorf("%s: is a %T, and no DIJob", info.Source, info.Object)
	}
	kind := content.GroupVersionKind()
	known := kind.GroupVersion() == v2alpha1.GroupVersion || kind.GroupVersion() == v1alpha1.GroupVersion
	switch {
	case kind.Kind == "DIJob" && known:
		return manifest{content, info.Source}, true, nil
	case strings.EqualFold(kind.Kind, "DIJob") && kind.Group == v2alpha1.GroupName:
		return manifest{}, false, fmt.Errorf("%s: %s %q is of %s: want kind DIJob of %s or %s", info.Source, kind.Kind, content.GetName(),
			kind.GroupVersion(), v2alpha1.GroupVersion, v1alpha1.GroupVersion)
	case slices.Contains([]string{"DIJob", "NerveXJob", "TFJob", "PyTorchJob", "MPIJob", "TrainJob"}, kind.Kind):
		return manifest{}, false, fmt.Errorf("%s: %s %q is of %s: import it by kubectl di convert -f FILE | kubectl di submit -f -",
			info.Source, kind.Kind, content.GetName(), kind.GroupVersion())
	}
	return manifest{content, info.Source}, false, nil
}
