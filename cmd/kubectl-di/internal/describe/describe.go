// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package describe is kubectl di describe.
package describe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

const long = `Describe jobs, each on one page: its phase and conditions, its replicas by task with
their nodes, restarts and exit codes, of a coordinator-led job what its coordinator
asked for, its last failure, its events and its pods' warnings.

What you may not read is left out, and the page says so.`

const examples = `  # Why does job cartpole not get on?
  kubectl di describe cartpole

  # All jobs of a team
  kubectl di describe -l team=rl`

// options are the flags of describe.
type options struct {
	streams genericiooptions.IOStreams
	events  bool
}

// NewCommand returns the command.
func NewCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	options := &options{streams: streams}
	help := arguments.Help{Use: "describe JOB...", Short: "Describe jobs: phase, replicas, failures, events", Long: long, Example: examples}
	command := arguments.NewJobsCommand(flags, help, func() error { return nil }, options.run)
	command.Flags().BoolVar(&options.events, "show-events", true, "show the events of the jobs, and the warnings of their pods")
	return command
}

func (o *options) run(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error {
	var failures []error
	for i, job := range jobs {
		if i > 0 {
			fmt.Fprint(o.streams.Out, "\n\n")
		}
		page, err := o.gather(ctx, found, job)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		_, err = o.streams.Out.Write(page.render())
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// page is what is known of a job.
type page struct {
	job        *v2alpha1.DIJob
	pods       []corev1.Pod
	membership *v2alpha1.Membership
	events     []corev1.Event
	// showEvents reports whether events were asked for.
	showEvents bool
	// unread are the parts that the user may not read, and what would allow it.
	unread map[string]string
	now    time.Time
}

// The parts of a page that the user may not be allowed to read.
const (
	partPods    = "pods"
	partMembers = "members"
	partEvents  = "events"
)

// gather reads what there is to know of a job.
func (o *options) gather(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob) (*page, error) {
	gathered := &page{job: job, showEvents: o.events, unread: map[string]string{}, now: time.Now()}
	var err error
	gathered.pods, err = found.Pods(ctx, job)
	if err := gathered.permit(partPods, err); err != nil {
		return nil, err
	}
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		gathered.membership, err = found.Membership(ctx, job)
		if err := gathered.permit(partMembers, err); err != nil {
			return nil, err
		}
	}
	if o.events {
		if err := gathered.permit(partEvents, gathered.gatherEvents(ctx, found)); err != nil {
			return nil, err
		}
	}
	return gathered, nil
}

// gatherEvents reads the events of the job, and what its pods are warned of.
func (p *page) gatherEvents(ctx context.Context, found *cluster.Cluster) error {
	var err error
	if p.events, err = found.Events(ctx, p.job); err != nil || len(p.pods) == 0 {
		return err
	}
	warnings, err := found.PodWarnings(ctx, p.job.Namespace)
	for i := range warnings {
		about := warnings[i].InvolvedObject.Name
		if slices.ContainsFunc(p.pods, func(pod corev1.Pod) bool { return pod.Name == about }) {
			p.events = append(p.events, warnings[i])
		}
	}
	return err
}

// permit notes a part that the user may not read; other errors stay.
func (p *page) permit(part string, err error) error {
	if apierrors.IsForbidden(err) {
		p.unread[part] = err.Error()
		return nil
	}
	return err
}
