// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/document"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
)

// NewDescribeCommand returns kubectl di describe.
func NewDescribeCommand(env *cli.Env) *cobra.Command {
	showEvents, output := true, cli.Data{}
	command := env.NewJobsCommand(cli.Help{
		Use: "describe JOB...", Short: "Describe jobs: phase, replicas, failures, events",
		Long: `Describe jobs, each on one page: its phase and conditions, its replicas by task with
their nodes, restarts and exit codes, of a coordinator-led job what its coordinator
asked for, its last failure, its events and its pods' warnings.

What you may not read is left out, and the page says so. With -o several jobs are a list.`,
		Example: `  # Why does job cartpole make no progress?
  kubectl di describe cartpole

  # All jobs of a team
  kubectl di describe -l team=rl

  # What would let it run, for a program
  kubectl di describe cartpole -o json | jq -r '.waiting.remedies[]'`,
	}, func(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
		var failures []error
		var documents []document.Job
		palette := cli.NewPalette(env.Out)
		for i, job := range jobs {
			page := &page{Observed: jobview.Observed{Job: job, Now: time.Now()}, showEvents: showEvents, unread: map[string]string{}}
			err := page.gather(ctx, found)
			switch {
			case err != nil:
			case !output.IsText():
				documents = append(documents, document.Of(&page.Observed, page.unread))
			default:
				if i > 0 {
					fmt.Fprint(env.Out, "\n\n")
				}
				_, err = env.Out.Write(page.coloured(palette))
			}
			failures = append(failures, err)
		}
		switch {
		case len(documents) == 1 && len(jobs) == 1:
			failures = append(failures, output.Print(env.Out, documents[0]))
		case len(documents) > 0:
			failures = append(failures, output.Print(env.Out, documents))
		}
		return errors.Join(failures...)
	})
	output.Bind(command, "print the pages")
	command.Flags().BoolVar(&showEvents, "show-events", true, "show the events of the jobs, and the warnings of their pods")
	return command
}

// Describe returns the page of a job, as far as it is observed.
func Describe(o *jobview.Observed) string {
	return string((&page{Observed: *o, showEvents: true}).render())
}

// page is the data about a job.
type page struct {
	jobview.Observed
	plans      []v2alpha1.ScalePlan
	showEvents bool
	queue      queue
	// unread are the parts that the user may not read, and the roles that allow it.
	unread map[string]string

	view *jobview.View
}

// The parts of a page that may need more rights.
const (
	partPods    = "pods"
	partMembers = "members"
	partEvents  = "events"
	partPlans   = "plans"
)

// The titles of the parts that the page of kubectl di ui shows, too.
const (
	partAllocation  = "Allocation"
	partAutoscaling = "Autoscaling"
	partFailure     = "Last failure"
)

// gather reads the data of the page.
func (p *page) gather(ctx context.Context, found *cluster.Cluster) (err error) {
	p.queue = queueOf(ctx, found, p.Job)
	p.Pods, err = found.Pods(ctx, p.Job)
	if err := p.permit(partPods, err); err != nil {
		return err
	}
	if p.Job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		p.Members.List, err = found.Membership(ctx, p.Job)
		p.Members.IsRead = err == nil
		if err := p.permit(partMembers, err); err != nil {
			return err
		}
	}
	p.plans, err = found.Plans(ctx, p.Job.Namespace, p.Job.Name)
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
func (p *page) gatherEvents(ctx context.Context, found *cluster.Cluster) error {
	events, err := found.Events(ctx, p.Job)
	if err == nil && len(p.Pods) > 0 {
		var warnings []corev1.Event
		warnings, err = found.PodWarnings(ctx, p.Job.Namespace)
		events = append(events, warnings...)
	}
	for i := range events {
		p.Events = append(p.Events, &events[i])
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
