// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"slices"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// deleting are the flags of delete.
type deleting struct {
	*cli.Env
	objects *cli.Objects
	wait    cli.Wait
}

// NewDeleteCommand returns kubectl di delete, with commands of its own that delete replicas.
func NewDeleteCommand(env *cli.Env, ofReplicas ...*cobra.Command) *cobra.Command {
	o := &deleting{Env: env}
	command := env.NewAllJobsCommand(cli.Help{
		Use: "delete JOB...", Short: "Delete jobs, or replicas of a running job",
		Long: `Delete jobs with all that belongs to them, as kubectl delete dijob does. If one of the
jobs does not exist, none is deleted.

"delete collector JOB" and "delete learner JOB" delete replicas of a running job, also in
the order "delete JOB collector". A job of such a name is deleted by dijob/collector.

To free the capacity of a job and keep the job, use kubectl di suspend.`,
		Example: `  # Delete job pong, and wait until its pods are gone
  kubectl di delete pong --wait

  # What would be deleted?
  kubectl di delete -l team=rl --dry-run=client

  # One collector less for job cartpole
  kubectl di delete collector cartpole`,
	}, o.run)
	command.SuggestFor = []string{"cancel", "kill", "remove", "rm"}
	o.wait.Bind(command, "no pod is left")
	o.objects = cli.BindObjects(command, "deleted")
	command.AddCommand(ofReplicas...)
	takeReversed(command, ofReplicas)
	return command
}

// takeReversed lets a command also take JOB TYPE, with the flags of the command that deletes replicas of the type.
func takeReversed(command *cobra.Command, ofReplicas []*cobra.Command) {
	var lent []string
	for _, one := range ofReplicas {
		one.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if command.Flags().Lookup(flag.Name) == nil {
				command.Flags().String(flag.Name, "", flag.Usage)
				command.Flags().Lookup(flag.Name).Hidden = true
				lent = append(lent, flag.Name)
			}
		})
	}
	of := func(args []string) *cobra.Command {
		at := slices.IndexFunc(ofReplicas, func(one *cobra.Command) bool {
			return len(args) == 2 && (args[1] == one.Name() || one.HasAlias(args[1]))
		})
		if at < 0 {
			return nil
		}
		return ofReplicas[at]
	}
	args, before, run := command.Args, command.PreRunE, command.RunE
	command.Args = func(command *cobra.Command, given []string) error {
		if of(given) != nil {
			return nil
		}
		for _, name := range lent {
			if command.Flags().Changed(name) {
				return cli.Usagef("--%s: is for replicas: kubectl di delete collector JOB --%s", name, name)
			}
		}
		return args(command, given)
	}
	command.PreRunE = func(command *cobra.Command, given []string) error {
		if of(given) != nil {
			return nil
		}
		return before(command, given)
	}
	command.RunE = func(command *cobra.Command, given []string) error {
		if one := of(given); one != nil {
			return runAs(one, command, given[:1])
		}
		return run(command, given)
	}
}

// runAs runs a command with the flags that another was called with.
func runAs(one, called *cobra.Command, args []string) error {
	var failures []error
	called.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		switch {
		case !flag.Changed:
			return
		case one.Flags().Lookup(flag.Name) == nil:
			failures = append(failures, cli.Usagef("--%s: is for whole jobs, and not for replicas", flag.Name))
			return
		}
		if err := one.Flags().Set(flag.Name, flag.Value.String()); err != nil {
			failures = append(failures, cli.Usagef("--%s %q: %w", flag.Name, flag.Value, err))
		}
	})
	if err := cli.Join(failures...); err != nil {
		return err
	}
	one.SetContext(called.Context())
	if err := one.Args(one, args); err != nil {
		return err
	}
	if err := one.PreRunE(one, args); err != nil {
		return err
	}
	return one.RunE(one, args)
}

func (o *deleting) run(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
	var failures []error
	var deleted []*v2alpha1.DIJob
	for _, job := range jobs {
		var err error
		if !o.objects.IsLocal() {
			err = found.Delete(ctx, job, !o.objects.IsReal())
		}
		if err == nil {
			deleted = append(deleted, job)
			job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
			err = o.objects.PrintObj(job, o.Out)
		}
		failures = append(failures, err)
	}
	if o.objects.IsReal() && o.wait.IsOn() {
		failures = append(failures, o.await(ctx, found, deleted))
	}
	return cli.Join(failures...)
}

// await waits until the pods of deleted jobs are gone.
func (o *deleting) await(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
	return o.wait.Each(ctx, o.ErrOut, len(jobs), func(ctx context.Context, report *cli.Progress, i int) error {
		subject, state := "job "+jobs[i].Namespace+"/"+jobs[i].Name, "its pods are not known"
		err := found.FollowPods(ctx, jobs[i], report.Say, func(left int) bool {
			state = podsLeft(left)
			report.State(subject, state)
			return left == 0
		})
		return cli.Stopped(ctx, err, "waiting for the pods of "+subject+", whose deletion continues: "+state)
	})
}

// podsLeft says how many pods are left.
func podsLeft(count int) string {
	if count == 0 {
		return "no pod is left"
	}
	return english.Plural(count, "pod is", "pods are") + " left"
}
