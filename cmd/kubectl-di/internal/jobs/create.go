// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/queueing"
)

// creating are the flags of the commands that create jobs: submit and run.
type creating struct {
	*cli.Env
	objects    *cli.Objects
	validation string
	watch      bool
	// checkPods also tries a pod of each task.
	checkPods bool
	timeout   cli.Timeout
	// others are objects that the jobs need. They are created before them.
	others []manifest
	// isOwner is set if the others are deleted with the job.
	isOwner bool
}

// bind adds the flags.
func (o *creating) bind(command *cobra.Command) {
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "follow the jobs until they end")
	o.timeout.Bind(command, "follow no longer than this; the jobs continue (default as long as it takes)")
	o.timeout.Stall.Bind(command)
	o.objects = cli.BindObjects(command, "submitted")
	cli.Before(command, func() error {
		switch {
		case o.watch && !o.objects.IsReal():
			return cli.Usagef("--watch and --dry-run exclude each other: a dry run leaves nothing to follow")
		case o.timeout.After > 0 && !o.watch:
			return cli.Usagef("--timeout %s: is for --watch", o.timeout.After)
		case o.timeout.Stall.After > 0 && !o.watch:
			return cli.Usagef("--fail-on-stall %s: is for --watch", o.timeout.Stall.After)
		}
		return nil
	})
}

// manifest is a job, and where it comes from.
type manifest struct {
	*unstructured.Unstructured
	source string
}

// create creates the jobs, and follows them to their end with --watch.
func (o *creating) create(ctx context.Context, jobs []manifest) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	if err := o.setNamespaces(jobs, found.Namespace); err != nil {
		return err
	}
	if err := o.submit(ctx, found, jobs); err != nil {
		return err
	}
	if o.isOwner && o.objects.IsReal() {
		o.own(ctx, found, jobs[0])
	}
	if !o.watch {
		return nil
	}
	return o.follow(ctx, found, jobs)
}

// own has the others deleted with the job. The job runs without that, too, so that a failure is a warning.
func (o *creating) own(ctx context.Context, found *cluster.Cluster, job manifest) {
	for _, other := range o.others {
		if err := found.Own(ctx, job.Unstructured, other.Unstructured); err != nil {
			fmt.Fprintf(o.ErrOut, "kubectl-di: %v\n%s %q is not deleted with the job\n", err, other.GetKind(), other.GetName())
		}
	}
}

// setNamespaces sets the command's namespace in jobs without one. Other jobs must not contradict a
// given namespace.
func (o *creating) setNamespaces(jobs []manifest, namespace string) error {
	var failures []error
	for _, job := range jobs {
		switch own := job.GetNamespace(); {
		case own == "":
			job.SetNamespace(namespace)
		case own != namespace && o.HasNamespace():
			failures = append(failures, cli.Usagef("%s: job %q is of namespace %s, and -n is %s: leave out one of them",
				job.source, job.GetName(), own, namespace))
		}
		if job.GetName() == "" && job.GetGenerateName() == "" {
			failures = append(failures, fmt.Errorf("%s: a job has no metadata.name", job.source))
		}
	}
	return errors.Join(failures...)
}

// submit creates the other objects and the jobs. It dry-runs several first.
func (o *creating) submit(ctx context.Context, found *cluster.Cluster, jobs []manifest) error {
	var failures []error
	if len(jobs)+len(o.others) > 1 && o.objects.IsReal() {
		failures = append(failures, o.createOthers(ctx, found, true))
		for _, job := range jobs {
			failures = append(failures, o.try(ctx, found, manifest{job.DeepCopy(), job.source}, true))
		}
		if err := errors.Join(failures...); err != nil {
			return fmt.Errorf("%w\nnothing was submitted", err)
		}
	}
	if err := o.createOthers(ctx, found, false); err != nil {
		return err
	}
	for _, job := range jobs {
		var err error
		if !o.objects.IsLocal() {
			err = o.try(ctx, found, job, !o.objects.IsReal())
		}
		switch {
		case !o.checkPods:
		case err == nil:
			err = o.tryPods(ctx, found, job, "is valid, but its pods")
		case errors.As(err, new(*cluster.RefusedError)):
			err = errors.Join(err, o.tryPodsToo(ctx, found, job))
		}
		if err == nil {
			err = o.objects.PrintObj(job.Unstructured, o.Out)
			o.warnOfQueue(ctx, found, job)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// createOthers creates the objects that the jobs need, or only tries them.
func (o *creating) createOthers(ctx context.Context, found *cluster.Cluster, onlyTry bool) error {
	if len(o.others) == 0 || o.objects.IsLocal() && onlyTry {
		return nil
	}
	create, err := found.Objects(o.fieldValidation(), o.HasNamespace())
	if err != nil {
		return err
	}
	var failures []error
	for _, other := range o.others {
		object, exists := other.DeepCopy(), false
		var err error
		if !o.objects.IsLocal() {
			exists, err = create(ctx, object, onlyTry || !o.objects.IsReal())
		}
		switch {
		case err != nil:
			err = fmt.Errorf("%s: %w", strings.TrimSpace(other.source), err)
		case onlyTry:
		case exists:
			fmt.Fprintf(o.ErrOut, "kubectl-di: %s %q exists already, and stays as it is\n", object.GetKind(), object.GetName())
		default:
			err = o.objects.PrintObj(object, o.Out)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// fieldValidation returns the API server's name of --validate.
func (o *creating) fieldValidation() string {
	return map[string]string{
		"strict": metav1.FieldValidationStrict, "warn": metav1.FieldValidationWarn, "ignore": metav1.FieldValidationIgnore,
	}[o.validation]
}

func (o *creating) try(ctx context.Context, found *cluster.Cluster, job manifest, dryRun bool) error {
	var more []client.CreateOption
	if o.checkPods {
		more = append(more, client.FieldOwner(names.NoPodCheck))
	}
	if err := found.Submit(ctx, job.Unstructured, o.fieldValidation(), dryRun, more...); err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(job.source), err)
	}
	return nil
}

// warnOfQueue warns about a job whose queue has no effect.
func (o *creating) warnOfQueue(ctx context.Context, found *cluster.Cluster, created manifest) {
	job := &v2alpha1.DIJob{}
	// A v1alpha1 job names its queue by the same label.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, job); err != nil || o.objects.IsLocal() {
		return
	}
	if queue := queueOf(ctx, found, job); queue.isUnserved {
		fmt.Fprintf(o.ErrOut, "kubectl-di: job %s/%s: queue %s\n", job.Namespace, job.Name, queue)
	}
}

// queue is the queue of Kueue that a job names.
type queue struct {
	name string
	// isUnserved reports whether the cluster has no Kueue.
	isUnserved bool
}

// queueOf returns the queue of a job. It looks for Kueue only if the job names a queue.
func queueOf(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob) queue {
	of := queue{name: queueing.ForJob(job).Queue}
	if of.name != "" {
		served, err := found.ServesKueue(ctx)
		of.isUnserved = err == nil && !served
	}
	return of
}

// String implements fmt.Stringer.
func (q queue) String() string {
	if q.isUnserved {
		return q.name + " has no effect: this cluster does not serve " + queueing.GroupName + ", so Kueue is not installed"
	}
	return q.name
}
