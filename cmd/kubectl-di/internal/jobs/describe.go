// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// NewDescribeCommand returns kubectl di describe.
func NewDescribeCommand(env *cli.Env) *cobra.Command {
	showEvents := true
	command := env.NewJobsCommand(cli.Help{
		Use: "describe JOB...", Short: "Describe jobs: phase, replicas, failures, events",
		Long: `Describe jobs, each on one page: its phase and conditions, its replicas by task with
their nodes, restarts and exit codes, of a coordinator-led job what its coordinator
asked for, its last failure, its events and its pods' warnings.

What you may not read is left out, and the page says so.`,
		Example: `  # Why does job cartpole make no progress?
  kubectl di describe cartpole

  # All jobs of a team
  kubectl di describe -l team=rl`,
	}, func(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
		var failures []error
		for i, job := range jobs {
			if i > 0 {
				fmt.Fprint(env.Out, "\n\n")
			}
			page := &page{job: job, showEvents: showEvents, unread: map[string]string{}, now: time.Now()}
			err := page.gather(ctx, found)
			if err == nil {
				_, err = env.Out.Write(page.render())
			}
			failures = append(failures, err)
		}
		return errors.Join(failures...)
	})
	command.Flags().BoolVar(&showEvents, "show-events", true, "show the events of the jobs, and the warnings of their pods")
	return command
}

// page is the data about a job.
type page struct {
	job        *v2alpha1.DIJob
	pods       []*corev1.Pod
	membership *v2alpha1.Membership
	plans      []v2alpha1.ScalePlan
	events     []corev1.Event
	showEvents bool
	queue      queue
	// unread are the parts that the user may not read, and the roles that allow it.
	unread map[string]string
	now    time.Time
}

// The parts of a page that may need more rights.
const (
	partPods    = "pods"
	partMembers = "members"
	partEvents  = "events"
	partPlans   = "plans"
)

// gather reads the data of the page.
func (p *page) gather(ctx context.Context, found *cluster.Cluster) (err error) {
	p.queue = queueOf(ctx, found, p.job)
	p.pods, err = found.Pods(ctx, p.job)
	if err := p.permit(partPods, err); err != nil {
		return err
	}
	if p.job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		p.membership, err = found.Membership(ctx, p.job)
		if err := p.permit(partMembers, err); err != nil {
			return err
		}
	}
	p.plans, err = found.Plans(ctx, p.job.Namespace, p.job.Name)
	// An installation that is older than the plugin has no plans.
	if err := p.permit(partPlans, err); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if !p.showEvents {
		return nil
	}
	return p.permit(partEvents, p.gatherEvents(ctx, found))
}

// gatherEvents reads the Events of the job, and the warnings about its pods.
func (p *page) gatherEvents(ctx context.Context, found *cluster.Cluster) (err error) {
	if p.events, err = found.Events(ctx, p.job); err != nil || len(p.pods) == 0 {
		return err
	}
	warnings, err := found.PodWarnings(ctx, p.job.Namespace)
	for i := range warnings {
		about := warnings[i].InvolvedObject.Name
		if slices.ContainsFunc(p.pods, func(pod *corev1.Pod) bool { return pod.Name == about }) {
			p.events = append(p.events, warnings[i])
		}
	}
	return err
}

// permit records a part that the user may not read, and returns other errors.
func (p *page) permit(part string, err error) error {
	if apierrors.IsForbidden(err) {
		p.unread[part] = err.Error()
		return nil
	}
	return err
}
