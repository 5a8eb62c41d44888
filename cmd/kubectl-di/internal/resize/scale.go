// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
)

// rescaling are the flags of scale.
type rescaling struct {
	*cli.Env
	replicas, current int32
	task              string
	objects           *cli.Objects
	wait              cli.Wait
}

// NewScaleCommand returns kubectl di scale.
func NewScaleCommand(env *cli.Env) *cobra.Command {
	o := &rescaling{Env: env}
	command := env.NewJobCommand(cli.Help{
		Use: "scale JOB COUNT", Short: "Set the number of replicas of a worker-led job's elastic task",
		Long: `Set the number of replicas of a worker-led job's elastic task, as kubectl scale
dijob does, by the job's scale subresource.

Unlike kubectl scale it refuses jobs whose coordinator or the allocator decides, and
jobs that were resized through di-server since. With --wait or --timeout it reports how
many replicas run until all do.`,
		Example: `  # Five collectors for job pong
  kubectl di scale pong 5

  # Only if it has three, and wait for up to five minutes until all run
  kubectl di scale pong --replicas 5 --current-replicas 3 --timeout 5m`,
	}, o.run)
	flags := command.Flags()
	flags.Int32Var(&o.replicas, "replicas", 0, "the desired number of replicas of the task, in place of COUNT")
	flags.Int32Var(&o.current, "current-replicas", -1, "scale only if this is the desired number now; -1 for any")
	flags.StringVar(&o.task, "task", "", "scale only if this is the job's elastic task")
	env.CompleteTaskFlag(command, "task", "")
	cli.Before(command, func() error {
		switch {
		case !flags.Changed("replicas"):
			return cli.Usagef("COUNT is missing: set the desired number of replicas, also by --replicas")
		case o.replicas < 0:
			return cli.Usagef("--replicas %d: want 0 or more", o.replicas)
		}
		return nil
	})
	o.wait.Bind(command, "all replicas run, and report how many do")
	o.objects = cli.BindObjects(command, "scaled")
	return command
}

func (o *rescaling) run(ctx context.Context, name string) error {
	found, job, err := o.ConnectJob(ctx, name)
	if err != nil {
		return err
	}
	task, err := o.scalable(job)
	if err != nil {
		return err
	}
	if !o.objects.IsLocal() || o.current >= 0 {
		if err := o.scale(ctx, found, job, task); err != nil {
			return err
		}
	}
	if !o.objects.IsReal() || !o.wait.IsOn() {
		return o.print(job)
	}
	progress := o.ErrOut
	if o.objects.IsText() {
		progress = o.Out
		if err := o.print(job); err != nil {
			return err
		}
	}
	err = o.wait.Until(ctx, found, progress, []*v2alpha1.DIJob{job}, func(job *v2alpha1.DIJob) (string, string, bool, error) {
		state, done, err := o.progress(job, task)
		return fmt.Sprintf("task %q", task), state, done, err
	})
	if err != nil || o.objects.IsText() {
		return err
	}
	return o.print(job)
}

// scale sets the number of replicas if --current-replicas matches. With --dry-run=client the API
// server still checks that condition.
func (o *rescaling) scale(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, task string) error {
	before, err := found.Scale(ctx, job, o.replicas, func(current int32) error {
		if o.current >= 0 && current != o.current {
			return fmt.Errorf("%s has %s of task %q desired, not %d: nothing was done", title(job), english.Plural(int(current), "replica", ""), task,
				o.current)
		}
		return nil
	}, !o.objects.IsReal())
	if err == nil && before == o.replicas {
		return o.overruled(job, task)
	}
	return err
}

// scalable returns the elastic task, or why the job cannot be scaled.
func (o *rescaling) scalable(job *v2alpha1.DIJob) (string, error) {
	if isCoordinatorLed(job) {
		return "", fmt.Errorf("%s is coordinator-led, and its coordinator decides about its replicas: "+
			"see kubectl di add collector %s, and delete", title(job), job.Name)
	}
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 {
		return "", fmt.Errorf("%s has no task that can be resized: name one in spec.elastic.task", title(job))
	}
	task := names.TaskName(&job.Spec.Tasks[elastic])
	switch {
	case o.task != "" && o.task != task:
		return "", fmt.Errorf("%s resizes task %q and not %q: name the other in spec.elastic.task, or change its replicas in spec.tasks",
			title(job), task, o.task)
	case job.Spec.Preemptible && !replicas.IsFinished(job):
		_, least, most := sizing.Range(job)
		now := resizedJob{MinReplicas: &least, MaxReplicas: &most}
		return "", fmt.Errorf("%s is preemptible, and the allocator gives task %q %s replicas: "+
			"move this range by kubectl di add and delete, or in spec.elastic", title(job), task, now.bounds())
	}
	return task, cluster.Finished(job)
}

// overruled returns an error if the spec already has the number, but the status has a newer total
// that overrides it.
func (o *rescaling) overruled(job *v2alpha1.DIJob, task string) error {
	recorded := job.Status.Scaling
	if recorded == nil || job.Status.Replicas == 0 || recorded.SpecReplicas[task] != o.replicas {
		return nil
	}
	total := int32(0)
	for _, replicas := range recorded.SpecReplicas {
		total += replicas
	}
	if total == job.Status.Replicas {
		return nil
	}
	return fmt.Errorf("the spec of %s has %s of task %q already, and the total of %d in its status, which was set through di-server or by a "+
		"user since, overrules it: nothing was done. To end that:\n"+
		"  kubectl -n %s patch dijob %s --subresource status --type merge -p '{\"status\":{\"replicas\":%d}}'",
		title(job), english.Plural(int(o.replicas), "replica", ""), task, job.Status.Replicas, job.Namespace, job.Name, total)
}

// print prints the job after the change.
func (o *rescaling) print(job *v2alpha1.DIJob) error {
	job = job.DeepCopy()
	job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	elastic := ptr.Deref(job.Spec.Elastic, v2alpha1.Elastic{})
	elastic.Replicas = &o.replicas
	job.Spec.Elastic = &elastic
	return o.objects.PrintObj(job, o.Out)
}

// progress returns the number of running replicas, and whether it is the desired one.
func (o *rescaling) progress(job *v2alpha1.DIJob, task string) (string, bool, error) {
	counts, status := job.Status.TaskStatus[task], &job.Status
	running, ended := counts[corev1.PodRunning], counts[corev1.PodSucceeded]
	state := fmt.Sprintf("%d of %d replicas run", running, o.replicas)
	if ended > 0 {
		state += fmt.Sprintf(", %d have succeeded", ended)
	}
	switch {
	case job.Spec.Elastic == nil || ptr.Deref(job.Spec.Elastic.Replicas, o.replicas) != o.replicas:
		return state, false, fmt.Errorf("%s was scaled by another user", title(job))
	case replicas.IsFinished(job):
		return state, false, fmt.Errorf("%w; %s", cluster.Finished(job), state)
	case ptr.Deref(job.Spec.Suspend, false):
		return state, false, fmt.Errorf("%s is suspended: its replicas are created when it is resumed", title(job))
	}
	return state, status.ObservedGeneration >= job.Generation && running+ended >= o.replicas && status.ElasticReplicas+ended <= o.replicas, nil
}
