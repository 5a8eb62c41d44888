// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/names"
)

const scaleLong = `Set the number of replicas of a worker-led job's elastic task, as kubectl scale
dijob does, by the job's scale subresource.

It says in advance what kubectl scale does not: that a job's coordinator or the
allocator decides, or that somebody else has resized the job since. With --wait or
--timeout it tells how many replicas run until all do.`

const scaleExamples = `  # Five collectors for job pong
  kubectl di scale pong --replicas 5

  # Only if it has three, and wait for up to five minutes until all run
  kubectl di scale pong --replicas 5 --current-replicas 3 --timeout 5m`

// progressInterval is how often it is looked how far a job is.
const progressInterval = 500 * time.Millisecond

// scaleOptions are the flags of scale.
type scaleOptions struct {
	flags             *cluster.Flags
	replicas, current int32
	task              string
	print             *printing.Flags
	dryRun            printing.DryRun
	wait              bool
	timeout           time.Duration
}

// NewScaleCommand returns kubectl di scale.
func NewScaleCommand(cluster *cluster.Flags) *cobra.Command {
	options := &scaleOptions{flags: cluster, print: printing.New("scaled")}
	command := arguments.NewJobCommand(cluster, arguments.Help{
		Use: "scale JOB --replicas COUNT", Short: "Set the number of replicas of a worker-led job's elastic task", Long: scaleLong, Example: scaleExamples,
	}, options.run)
	flags := command.Flags()
	flags.Int32Var(&options.replicas, "replicas", 0, "the number of replicas that the task is to have (required)")
	flags.Int32Var(&options.current, "current-replicas", -1, "scale only if the task is to have so many now; -1 for any")
	flags.StringVar(&options.task, "task", "", "scale only if this is the job's elastic task")
	flags.BoolVar(&options.wait, "wait", false, "wait until all replicas run, and tell how many do")
	flags.DurationVar(&options.timeout, "timeout", 0, "wait for no longer than this; 0 for as long as it takes with --wait, and not at all without")
	options.dryRun.Bind(flags, "scaled")
	options.print.Bind(command)
	return command
}

// check says what is wrong with the flags.
func (o *scaleOptions) check(command *cobra.Command) error {
	switch {
	case !command.Flags().Changed("replicas"):
		return exit.Usagef("--replicas is missing: say how many the task is to have")
	case o.replicas < 0:
		return exit.Usagef("--replicas %d: want 0 or more", o.replicas)
	case o.timeout < 0:
		return exit.Usagef("--timeout %s: want 0 or more", o.timeout)
	}
	return o.dryRun.Check()
}

func (o *scaleOptions) run(command *cobra.Command, name string) error {
	if err := o.check(command); err != nil {
		return err
	}
	printer, err := o.print.Printer(o.dryRun.Suffix())
	if err != nil {
		return err
	}
	found, err := o.flags.Connect()
	if err != nil {
		return err
	}
	ctx := command.Context()
	job, err := found.Job(ctx, name)
	if err != nil {
		return err
	}
	task, err := o.scalable(job)
	if err != nil {
		return err
	}
	if !o.dryRun.IsSaid() || o.current >= 0 {
		if err := o.scale(ctx, found, job, task); err != nil {
			return err
		}
	}
	if !o.dryRun.IsReal() || !o.wait && o.timeout == 0 {
		return o.show(printer, command.OutOrStdout(), job)
	}
	return o.follow(command, printer, found, job, task)
}

// scale sets the number of replicas if the job's is as --current-replicas says. With
// --dry-run=client the API server still tries it, to check that condition.
func (o *scaleOptions) scale(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, task string) error {
	before, err := found.Scale(ctx, job, o.replicas, func(current int32) error {
		if o.current >= 0 && current != o.current {
			return fmt.Errorf("job %s/%s is to have %s of task %q, not %d: nothing was done",
				job.Namespace, job.Name, counted(int(current), "replica"), task, o.current)
		}
		return nil
	}, !o.dryRun.IsReal())
	if err == nil && before == o.replicas {
		return o.overruled(job, task)
	}
	return err
}

// scalable returns the task that is scaled, or why the job's replicas are not
// to be decided upon so.
func (o *scaleOptions) scalable(job *v2alpha1.DIJob) (string, error) {
	title := "job " + job.Namespace + "/" + job.Name
	if isCoordinatorLed(job) {
		return "", fmt.Errorf("%s is coordinator-led, and its coordinator decides about its replicas: "+
			"see kubectl di add collector %s, and delete", title, job.Name)
	}
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 {
		return "", fmt.Errorf("%s has no task that can be resized: name one in spec.elastic.task", title)
	}
	task := names.TaskName(&job.Spec.Tasks[elastic])
	switch phase := job.Status.Phase; {
	case o.task != "" && o.task != task:
		return "", fmt.Errorf("%s resizes task %q and not %q: name the other in spec.elastic.task, or change its replicas in spec.tasks", title, task, o.task)
	case phase == v2alpha1.JobSucceeded || phase == v2alpha1.JobFailed:
		return "", fmt.Errorf("%s has finished: %s", title, phase)
	case job.Spec.Preemptible:
		_, least, most := sizing.Range(job)
		now := resizedJob{MinReplicas: &least, MaxReplicas: &most}
		return "", fmt.Errorf("%s is preemptible, and the allocator gives task %q %s replicas: "+
			"move this range by kubectl di add and delete, or in spec.elastic", title, task, now.bounds())
	}
	return task, nil
}

// overruled tells where the spec says already what it was to say, and another
// total, which was written to the status since, wins.
func (o *scaleOptions) overruled(job *v2alpha1.DIJob, task string) error {
	scaling := job.Status.Scaling
	if scaling == nil || job.Status.Replicas == 0 || scaling.SpecReplicas[task] != o.replicas {
		return nil
	}
	total := int32(0)
	for _, replicas := range scaling.SpecReplicas {
		total += replicas
	}
	if total == job.Status.Replicas {
		return nil
	}
	return fmt.Errorf("the spec of job %s/%s says %s of task %q already, and the total of %d in its status, which di-server or a person has "+
		"asked for since, wins: nothing was done. To end that:\n"+
		"  kubectl -n %s patch dijob %s --subresource status --type merge -p '{\"status\":{\"replicas\":%d}}'",
		job.Namespace, job.Name, counted(int(o.replicas), "replica"), task, job.Status.Replicas, job.Namespace, job.Name, total)
}

// show prints the job with the number that it was given.
func (o *scaleOptions) show(printer printers.ResourcePrinter, out io.Writer, job *v2alpha1.DIJob) error {
	job = job.DeepCopy()
	job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	elastic := ptr.Deref(job.Spec.Elastic, v2alpha1.Elastic{})
	elastic.Replicas = &o.replicas
	job.Spec.Elastic = &elastic
	return printer.PrintObj(job, out)
}

// follow reports how many replicas run until all do.
func (o *scaleOptions) follow(command *cobra.Command, printer printers.ResourcePrinter, found *cluster.Cluster, job *v2alpha1.DIJob, task string) error {
	told := command.ErrOrStderr()
	if o.print.IsText() {
		told = command.OutOrStdout()
		if err := o.show(printer, told, job); err != nil {
			return err
		}
	}
	ctx, cancel := command.Context(), func() {}
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
	}
	defer cancel()
	progress := "nothing was seen of the job yet"
	err := wait.PollUntilContextCancel(ctx, progressInterval, true, func(ctx context.Context) (bool, error) {
		now, err := found.Job(ctx, job.Name)
		switch {
		case err != nil && (ctx.Err() != nil || !cluster.IsGone(err) && !cluster.IsDenied(err)):
			return false, nil //nolint:nilerr // It is asked again until the time is over.
		case err != nil:
			return false, err
		}
		job = now
		state, there, err := o.progress(job, task)
		if err == nil && state != progress {
			progress = state
			fmt.Fprintln(told, state)
		}
		return there, err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("stopped to wait: %s; the job goes on towards it", progress)
	}
	if err != nil || o.print.IsText() {
		return err
	}
	return o.show(printer, command.OutOrStdout(), job)
}

// progress reports how many replicas run, and whether that is what was asked for.
func (o *scaleOptions) progress(job *v2alpha1.DIJob, task string) (string, bool, error) {
	title := "job " + job.Namespace + "/" + job.Name
	counts, status := job.Status.TaskStatus[task], &job.Status
	running, ended := counts[corev1.PodRunning], counts[corev1.PodSucceeded]
	state := fmt.Sprintf("task %q: %d of %d replicas run", task, running, o.replicas)
	if ended > 0 {
		state += fmt.Sprintf(", %d have succeeded", ended)
	}
	switch phase := status.Phase; {
	case job.Spec.Elastic == nil || ptr.Deref(job.Spec.Elastic.Replicas, o.replicas) != o.replicas:
		return state, false, fmt.Errorf("%s was scaled by somebody else meanwhile", title)
	case phase == v2alpha1.JobSucceeded || phase == v2alpha1.JobFailed:
		return state, false, fmt.Errorf("%s has finished: %s; %s", title, phase, state)
	case ptr.Deref(job.Spec.Suspend, false):
		return state, false, fmt.Errorf("%s is suspended: its replicas come when it is resumed", title)
	}
	there := status.ObservedGeneration >= job.Generation && running+ended >= o.replicas && status.ElasticReplicas+ended <= o.replicas
	return state, there, nil
}
