// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// NewWaitCommand returns kubectl di wait.
func NewWaitCommand(env *cli.Env) *cobra.Command {
	var target string
	var goal *goal
	var timeout cli.Timeout
	command := env.NewAllJobsCommand(cli.Help{
		Use: "wait JOB...", Short: "Wait until jobs are in a state",
		Long: `Wait until all of the jobs are in a state:

  finished          the job has succeeded or failed
  running           all of it runs, or it has succeeded already
  phase=PHASE       it is in this phase
  condition=TYPE    this condition is True; =STATUS after it names another status

The command ends early when the state can no longer come, because a job has finished or
is deleted, and with --fail-on-stall when one is stuck.

Exit codes: 0 all are in the state; 1 one can never be, or is stuck; 2 wrong use; 124 --timeout ended
the wait.`,
		Example: `  # Until job pong has succeeded; a failure ends the wait with 1
  kubectl di wait pong

  # Until all jobs of a team have finished, for at most two hours
  kubectl di wait -l team=rl --for finished --timeout 2h

  # Until it runs; an image that cannot be pulled ends the wait after a minute
  kubectl di wait pong --for running --fail-on-stall 1m

  # Until a queue has admitted job pong
  kubectl di wait pong --for condition=Admitted`,
	}, func(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
		err := timeout.Until(ctx, found, env.ErrOut, jobs, goal.progress)
		for _, job := range jobs {
			if goal.isReached(job) {
				fmt.Fprintf(env.Out, "dijob.%s/%s condition met\n", v2alpha1.GroupName, job.Name)
			}
		}
		return err
	})
	command.Flags().StringVar(&target, "for", "phase="+string(v2alpha1.JobSucceeded), "the state: finished, running, phase=PHASE or condition=TYPE[=STATUS]")
	timeout.Bind(command, "wait no longer than this (default as long as it takes)")
	timeout.Stall.Bind(command)
	_ = command.RegisterFlagCompletionFunc("for", completeGoals)
	cli.Before(command, func() (err error) {
		goal, err = parseGoal(target)
		return err
	})
	return command
}

func completeGoals(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	goals := []string{"finished", "running", "condition="}
	for _, phase := range replicas.Phases() {
		goals = append(goals, "phase="+phase)
	}
	return goals, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// goal is a state of a job to wait for.
type goal struct {
	text      string
	isReached func(*v2alpha1.DIJob) bool
}

// parseGoal reads a value of --for.
func parseGoal(text string) (*goal, error) {
	kind, value, _ := strings.Cut(text, "=")
	switch {
	case text == "finished":
		return &goal{text, replicas.IsFinished}, nil
	case text == "running":
		return &goal{text, func(job *v2alpha1.DIJob) bool {
			return job.Status.Phase == v2alpha1.JobRunning || job.Status.Phase == v2alpha1.JobSucceeded
		}}, nil
	case kind == "phase":
		phases := replicas.Phases()
		at := slices.IndexFunc(phases, func(phase string) bool { return strings.EqualFold(phase, value) })
		if at < 0 {
			return nil, cli.Usagef("--for %q: want one of the phases %s", text, strings.Join(phases, ", "))
		}
		return &goal{text, func(job *v2alpha1.DIJob) bool { return string(job.Status.Phase) == phases[at] }}, nil
	case kind == "condition" && value != "":
		return &goal{text, conditionIs(value)}, nil
	}
	return nil, cli.Usagef("--for %q: want finished, running, phase=PHASE or condition=TYPE", text)
}

// conditionIs returns whether a condition, given as TYPE or TYPE=STATUS, has its status. Like kubectl
// wait it ignores case.
func conditionIs(text string) func(*v2alpha1.DIJob) bool {
	kind, status, hasStatus := strings.Cut(text, "=")
	if !hasStatus {
		status = string(corev1.ConditionTrue)
	}
	return func(job *v2alpha1.DIJob) bool {
		return slices.ContainsFunc(job.Status.Conditions, func(condition v2alpha1.DIJobCondition) bool {
			return strings.EqualFold(condition.Type, kind) && strings.EqualFold(string(condition.Status), status)
		})
	}
}

// progress returns the state of a job and whether it is the goal, or an error if it can no longer
// become the goal.
func (g *goal) progress(job *v2alpha1.DIJob) (subject, state string, done bool, err error) {
	subject, state = "job "+job.Namespace+"/"+job.Name, stateOf(job)
	isFinished := replicas.IsFinished(job)
	switch {
	case g.isReached(job) && (isFinished || job.Status.ObservedGeneration >= job.Generation):
		return subject, state, true, nil
	case isFinished:
		why := ""
		if job.Status.Phase == v2alpha1.JobFailed {
			why = whyFailed(job)
		}
		return "", "", false, fmt.Errorf("%s is in phase %s, so --for %s can no longer come true%s", subject, job.Status.Phase, g.text, why)
	case job.DeletionTimestamp != nil:
		return "", "", false, fmt.Errorf("%s is being deleted, so --for %s can no longer come true", subject, g.text)
	}
	return subject, state, false, nil
}
