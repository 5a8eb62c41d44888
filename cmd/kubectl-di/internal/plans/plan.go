// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plans has the commands about ScalePlans.
package plans

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/job/scaling"
)

// planning are the flags of plan.
type planning struct {
	*cli.Env
	tasks, launch, remove, migrate []string
	cpu, memory, reason            string
	deadline                       time.Duration
	objects                        *cli.Objects
	wait                           cli.Wait
	// spec is the plan that the flags describe.
	spec v2alpha1.ScalePlanSpec
}

// NewCommand returns kubectl di plan.
func NewCommand(env *cli.Env) *cobra.Command {
	o := &planning{Env: env}
	command := env.NewJobCommand(cli.Help{
		Use: "plan JOB", Short: "Change replicas and resources of a running job once, by a ScalePlan",
		Long: `Change replicas and resources of a running job once: create a ScalePlan, which the
operator executes. A newer plan of a job supersedes an older one.

--cpu and --memory apply to the tasks of --task and the pods of --migrate. A task without
a count keeps its number of replicas. The API server refuses a plan that the job cannot
execute. kubectl di plan history JOB shows the plans of a job.`,
		Example: `  # Eight collectors for job pong
  kubectl di plan pong --task collector=8

  # 4 GiB for each learner, and wait until they have it
  kubectl di plan pong --task learner --memory 4Gi --reason "larger batches" --wait --timeout 15m

  # Move a parameter server to another node, with more CPU
  kubectl di plan pong --migrate pong-ps-1 --cpu 4`,
	}, o.run)
	flags := command.Flags()
	flags.StringArrayVar(&o.tasks, "task", nil, "a task to change, as NAME=COUNT, or NAME to keep its number; may be repeated")
	flags.StringVar(&o.cpu, "cpu", "", "the CPU that each replica of --task and --migrate requests, such as 500m")
	flags.StringVar(&o.memory, "memory", "", "the memory that it requests, such as 4Gi")
	flags.StringArrayVar(&o.launch, "launch", nil, "a pod to create beside the existing ones; may be repeated")
	flags.StringArrayVar(&o.remove, "remove", nil, "a pod to remove; may be repeated")
	flags.StringArrayVar(&o.migrate, "migrate", nil, "a pod to replace, with other resources or on another node; may be repeated")
	flags.StringVar(&o.reason, "reason", "", "why, for people")
	env.CompleteTaskFlag(command, "task", "=")
	for _, flag := range []string{"remove", "migrate"} {
		env.CompletePodFlag(command, flag)
	}
	flags.DurationVar(&o.deadline, "deadline", 0, "how long the plan may execute; 10m by default")
	o.wait.Bind(command, "the plan has finished, and fail if it has not succeeded")
	cli.Before(command, o.read)
	o.objects = cli.BindObjects(command, "created")
	command.AddCommand(newHistoryCommand(env))
	return command
}

// read reads the flags.
func (o *planning) read() error {
	resources, err := o.resources()
	if err != nil {
		return err
	}
	o.spec = v2alpha1.ScalePlanSpec{Launch: o.launch, Remove: o.remove, Reason: o.reason, Origin: v2alpha1.PlanManual}
	for _, text := range o.tasks {
		task, err := o.task(text)
		if err != nil {
			return err
		}
		task.Resources = resources
		o.spec.Tasks = append(o.spec.Tasks, task)
	}
	for _, pod := range o.migrate {
		o.spec.Migrate = append(o.spec.Migrate, v2alpha1.PodMigration{Pod: pod, Resources: resources})
	}
	switch {
	case len(o.tasks)+len(o.launch)+len(o.remove)+len(o.migrate) == 0:
		return cli.Usagef("the plan changes nothing: want --task, --launch, --remove or --migrate")
	case len(o.tasks)+len(o.migrate) == 0 && (o.cpu != "" || o.memory != ""):
		return cli.Usagef("--cpu and --memory need --task or --migrate, which they apply to")
	case o.deadline < 0 || o.deadline > 0 && o.deadline < time.Second:
		return cli.Usagef("--deadline %s: want 1s or more", o.deadline)
	case o.deadline > 0:
		seconds := int32(min(o.deadline.Seconds(), 1<<30))
		o.spec.DeadlineSeconds = &seconds
	}
	return nil
}

// task reads a value of --task.
func (o *planning) task(text string) (v2alpha1.TaskScale, error) {
	name, count, hasCount := strings.Cut(text, "=")
	task := v2alpha1.TaskScale{Name: name}
	if !hasCount {
		if o.cpu == "" && o.memory == "" {
			return task, cli.Usagef("--task %q: want a count, as in %s=4, or --cpu or --memory", text, text)
		}
		return task, nil
	}
	replicas, err := strconv.ParseInt(count, 10, 32)
	if err != nil || replicas < 0 || name == "" {
		return task, cli.Usagef("--task %q: want NAME=COUNT with a count of 0 or more, or NAME", text)
	}
	number := int32(replicas)
	task.Replicas = &number
	return task, nil
}

// resources returns the requests of --cpu and --memory.
func (o *planning) resources() (requests v2alpha1.ReplicaResources, err error) {
	if requests.CPU, err = cli.Quantity("cpu", o.cpu); err == nil {
		requests.Memory, err = cli.Quantity("memory", o.memory)
	}
	return requests, err
}

func (o *planning) run(ctx context.Context, name string) error {
	found, job, err := o.ConnectJob(ctx, name)
	if err != nil {
		return err
	}
	if err := cluster.Finished(job); err != nil {
		return err
	}
	plan := scaling.NewPlan(job, &o.spec, time.Now())
	plan.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("ScalePlan"))
	if !o.objects.IsLocal() {
		if err := found.CreatePlan(ctx, plan, !o.objects.IsReal()); err != nil {
			return err
		}
		plan.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("ScalePlan"))
	}
	if err := o.objects.PrintObj(plan, o.Out); err != nil || !o.wait.IsOn() || !o.objects.IsReal() {
		return err
	}
	return o.await(ctx, found, plan)
}

// await waits until the plan has finished, and reports its progress.
func (o *planning) await(ctx context.Context, found *cluster.Cluster, plan *v2alpha1.ScalePlan) error {
	ctx, cancel := o.wait.Context(ctx)
	defer cancel()
	report := cli.NewProgress(o.ErrOut)
	defer report.End()
	subject, last := "plan "+plan.Namespace+"/"+plan.Name, "its state is unknown"
	for {
		if phase := plan.Status.Phase; phase != "" {
			last = strings.TrimSuffix(string(phase)+", "+plan.Status.Message, ", ")
			report.State(subject, last)
			switch {
			case phase == v2alpha1.PlanSucceeded:
				return nil
			case scaling.IsFinished(phase):
				return fmt.Errorf("%s has not succeeded: %s: %s", subject, phase, plan.Status.Message)
			}
		}
		select {
		case <-ctx.Done():
			return cli.Stopped(ctx, ctx.Err(), "waiting for "+subject+", which continues: "+last)
		case <-time.After(time.Second):
		}
		if err := found.Get(ctx, plan.Namespace, plan.Name, plan); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
