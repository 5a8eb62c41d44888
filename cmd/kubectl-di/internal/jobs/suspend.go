// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// suspending are the flags of suspend and resume.
type suspending struct {
	*cli.Env
	objects *cli.Objects
	wait    cli.Wait
	// suspend is the desired spec.suspend.
	suspend bool
}

// NewSuspendCommand returns kubectl di suspend.
func NewSuspendCommand(env *cli.Env) *cobra.Command {
	o := &suspending{Env: env, suspend: true}
	command := o.command("suspended", "no pod is left", cli.Help{
		Use: "suspend JOB...", Short: "Suspend jobs: delete their pods until they are resumed",
		Long: `Suspend jobs: their pods are deleted, and created again when the jobs are resumed.

State that a job keeps only in its pods is lost, so have it save its work: see the
checkpoints of DI-engine. A job that is suspended already stays suspended.`,
		Example: `  # Make room: suspend job pong, and wait until its pods are gone
  kubectl di suspend pong --wait

  # Suspend all jobs of a team
  kubectl di suspend -l team=rl`,
	})
	command.Aliases = []string{"stop"}
	command.SuggestFor = []string{"cancel", "kill", "pause", "halt", "terminate"}
	return command
}

// NewResumeCommand returns kubectl di resume.
func NewResumeCommand(env *cli.Env) *cobra.Command {
	o := &suspending{Env: env}
	command := o.command("resumed", "all replicas run", cli.Help{
		Use: "resume JOB...", Short: "Resume suspended jobs",
		Long: `Resume suspended jobs: their pods are created again.

A job that is not suspended stays as it is.`,
		Example: `  # Resume job pong, and wait until all of it runs
  kubectl di resume pong --wait

  # Resume all jobs of a team, in a dry run that the API server checks
  kubectl di resume -l team=rl --dry-run=server`,
	})
	command.SuggestFor = []string{"start", "continue", "unsuspend"}
	return command
}

func (o *suspending) command(done, until string, help cli.Help) *cobra.Command {
	command := o.NewJobsCommand(help, o.run)
	o.wait.Bind(command, until)
	o.objects = cli.BindObjects(command, done)
	return command
}

func (o *suspending) run(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
	var failures []error
	var changed []*v2alpha1.DIJob
	for _, job := range jobs {
		err := o.change(ctx, found, job)
		if failures = append(failures, err); err == nil {
			changed = append(changed, job)
		}
	}
	if o.objects.IsReal() && o.wait.IsOn() {
		failures = append(failures, o.wait.Until(ctx, found, o.ErrOut, changed, o.progress))
	}
	return cli.Join(failures...)
}

// change suspends or resumes a job, unless that is a no-op.
func (o *suspending) change(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob) error {
	if err := cluster.Finished(job); err != nil {
		return err
	}
	isNoop := ptr.Deref(job.Spec.Suspend, false) == o.suspend
	switch {
	case isNoop:
		state := map[bool]string{true: "suspended already", false: "not suspended"}[o.suspend]
		fmt.Fprintf(o.ErrOut, "kubectl-di: job %s/%s is %s: nothing was done\n", job.Namespace, job.Name, state)
	case o.objects.IsLocal():
		job.Spec.Suspend = &o.suspend
	default:
		if err := found.SetSuspended(ctx, job, o.suspend, !o.objects.IsReal()); err != nil {
			return err
		}
	}
	if isNoop && o.objects.IsText() {
		return nil
	}
	job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	err := o.objects.PrintObj(job, o.Out)
	if o.suspend && !isNoop && o.objects.IsReal() && o.objects.IsText() {
		fmt.Fprintf(o.ErrOut, "kubectl-di: kubectl di resume %s -n %s continues it\n", job.Name, job.Namespace)
	}
	return err
}

// progress returns the state of a job, and whether it has been suspended or resumed.
func (o *suspending) progress(job *v2alpha1.DIJob) (subject, state string, done bool, err error) {
	subject = "job " + job.Namespace + "/" + job.Name
	if ptr.Deref(job.Spec.Suspend, false) != o.suspend {
		return "", "", false, fmt.Errorf("%s was changed by another user: spec.suspend is %t", subject, !o.suspend)
	}
	observed := job.Status.ObservedGeneration >= job.Generation
	phase := job.Status.Phase
	if o.suspend {
		left := int(countPods(job))
		switch {
		case observed && phase == v2alpha1.JobPending && left == 0:
			return subject, fmt.Sprintf("%s, %s", phase, podsLeft(left)), true, nil
		case observed && replicas.IsFinished(job):
			return subject, fmt.Sprintf("%s, it finished before it was suspended", phase), true, nil
		}
		return subject, fmt.Sprintf("%s, %s", phase, podsLeft(left)), false, nil
	}
	if observed && phase == v2alpha1.JobFailed {
		return "", "", false, fmt.Errorf("%s has failed", subject)
	}
	summary := jobview.Summarize(job, jobview.Members{})
	state = fmt.Sprintf("%s, %d of %d replicas are ready", phase, summary.Ready, summary.Desired)
	return subject, state, observed && (phase == v2alpha1.JobRunning || phase == v2alpha1.JobSucceeded), nil
}

// countPods counts the pods of a job. A pod that ended by SIGTERM still exists until it is deleted.
func countPods(job *v2alpha1.DIJob) int32 {
	count := int32(0)
	for _, counts := range job.Status.TaskStatus {
		for _, pods := range counts {
			count += pods
		}
	}
	return count
}
