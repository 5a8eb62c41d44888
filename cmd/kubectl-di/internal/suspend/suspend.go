// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suspend is kubectl di suspend and resume.
package suspend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/terminal"
)

const suspendLong = `Suspend jobs: their pods are deleted, and come again when the jobs are resumed.

What a job keeps in its pods alone is lost, so have it save its work: see the
checkpoints of DI-engine. A job that is suspended already stays so.`

const suspendExamples = `  # Make room: suspend job pong, and wait until its pods are gone
  kubectl di suspend pong --wait

  # Suspend all jobs of a team
  kubectl di suspend -l team=rl`

const resumeLong = `Resume suspended jobs: their pods are made again.

A job that is not suspended stays as it is.`

const resumeExamples = `  # Let job pong go on, and wait until all of it runs
  kubectl di resume pong --wait

  # Let all jobs of a team go on, in a trial that the API server checks
  kubectl di resume -l team=rl --dry-run=server`

// options are the flags of suspend and resume.
type options struct {
	flags   *cluster.Flags
	streams genericiooptions.IOStreams
	print   *printing.Flags
	printer printers.ResourcePrinter
	// suspend is what the jobs' spec is to say.
	suspend bool
	wait    bool
	timeout time.Duration
	dryRun  printing.DryRun
}

// NewSuspendCommand returns kubectl di suspend.
func NewSuspendCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	options := &options{flags: flags, streams: streams, suspend: true, print: printing.New("suspended")}
	return options.command(arguments.Help{
		Use: "suspend JOB...", Short: "Suspend jobs: delete their pods until they are resumed", Long: suspendLong, Example: suspendExamples,
	})
}

// NewResumeCommand returns kubectl di resume.
func NewResumeCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	options := &options{flags: flags, streams: streams, print: printing.New("resumed")}
	return options.command(arguments.Help{Use: "resume JOB...", Short: "Resume suspended jobs", Long: resumeLong, Example: resumeExamples})
}

func (o *options) command(help arguments.Help) *cobra.Command {
	command := arguments.NewJobsCommand(o.flags, help, o.check, o.run)
	own := command.Flags()
	waited := "all replicas run"
	if o.suspend {
		waited = "no pod is left"
	}
	own.BoolVar(&o.wait, "wait", false, "wait until "+waited)
	own.DurationVar(&o.timeout, "timeout", 0, "wait for no longer than this; 0 for as long as it takes with --wait, and not at all without")
	o.dryRun.Bind(own, "done")
	o.print.Bind(command)
	return command
}

// check checks the flags.
func (o *options) check() (err error) {
	if o.timeout < 0 {
		return exit.Usagef("--timeout %s: want 0 or more", o.timeout)
	}
	if err := o.dryRun.Check(); err != nil {
		return err
	}
	o.printer, err = o.print.Printer(o.dryRun.Suffix())
	return err
}

func (o *options) run(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
	var failures []error
	var changed []*v2alpha1.DIJob
	for _, job := range jobs {
		if err := o.change(ctx, found, job); err != nil {
			failures = append(failures, err)
			continue
		}
		changed = append(changed, job)
	}
	if o.dryRun.IsReal() && (o.wait || o.timeout > 0) {
		failures = append(failures, o.follow(ctx, found, changed))
	}
	return errors.Join(failures...)
}

// change suspends or resumes a job, if it is not so already.
func (o *options) change(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob) error {
	if err := o.refuse(job); err != nil {
		return err
	}
	there := ptr.Deref(job.Spec.Suspend, false) == o.suspend
	switch {
	case there:
		fmt.Fprintf(o.streams.ErrOut, "kubectl-di: job %s/%s %s: nothing was done\n", job.Namespace, job.Name, o.already())
	case o.dryRun.IsSaid():
		job.Spec.Suspend = &o.suspend
	default:
		if err := found.SetSuspended(ctx, job, o.suspend, !o.dryRun.IsReal()); err != nil {
			return err
		}
	}
	if there && o.print.Form() == "" {
		return nil
	}
	job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	return o.printer.PrintObj(job, o.streams.Out)
}

func (o *options) already() string {
	if o.suspend {
		return "is suspended already"
	}
	return "is not suspended"
}

// refuse says why a job can be neither suspended nor resumed.
func (o *options) refuse(job *v2alpha1.DIJob) error {
	phase := job.Status.Phase
	switch {
	case job.DeletionTimestamp != nil:
		return fmt.Errorf("job %s/%s is being deleted", job.Namespace, job.Name)
	case phase == v2alpha1.JobSucceeded || phase == v2alpha1.JobFailed:
		return fmt.Errorf("job %s/%s has finished: %s", job.Namespace, job.Name, phase)
	}
	return nil
}

// follow reports the progress of the jobs, one after the other, until all are
// suspended, or run.
func (o *options) follow(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
	cancel := func() {}
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
	}
	defer cancel()
	told := terminal.NewProgress(o.streams.ErrOut)
	defer told.End()
	var failures []error
	for _, job := range jobs {
		state := "nothing was seen of it yet"
		err := found.FollowJob(ctx, job.Namespace, job.Name, told.Say, func(now *v2alpha1.DIJob) (bool, error) {
			seen, done, err := o.progress(now)
			if state = seen; err == nil {
				told.State("job "+job.Namespace+"/"+job.Name, state)
			}
			return done, err
		})
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("stopped to wait for job %s/%s: %s; the job goes on towards it", job.Namespace, job.Name, state)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// progress reports how far a job is, and whether it is there.
func (o *options) progress(job *v2alpha1.DIJob) (string, bool, error) {
	if ptr.Deref(job.Spec.Suspend, false) != o.suspend {
		return "", false, fmt.Errorf("job %s/%s was changed by somebody else meanwhile: spec.suspend is %t", job.Namespace, job.Name, !o.suspend)
	}
	observed := job.Status.ObservedGeneration >= job.Generation
	phase := job.Status.Phase
	if o.suspend {
		left := pods(job)
		done := observed && (phase == v2alpha1.JobPending && left == 0 || phase == v2alpha1.JobSucceeded || phase == v2alpha1.JobFailed)
		if done {
			return fmt.Sprintf("%s, no pod is left", phase), true, nil
		}
		return fmt.Sprintf("%s, %d pods are left", phase, left), false, nil
	}
	state := fmt.Sprintf("%s, %d of %d replicas are ready", phase, job.Status.ReadyReplicas, job.Status.Replicas)
	if observed && phase == v2alpha1.JobFailed {
		return state, false, fmt.Errorf("job %s/%s has failed", job.Namespace, job.Name)
	}
	return state, observed && (phase == v2alpha1.JobRunning || phase == v2alpha1.JobSucceeded), nil
}

// pods counts the pods of a job that live.
func pods(job *v2alpha1.DIJob) int32 {
	left := int32(0)
	for _, counts := range job.Status.TaskStatus {
		for phase, count := range counts {
			if phase != "Succeeded" && phase != "Failed" {
				left += count
			}
		}
	}
	return left
}
