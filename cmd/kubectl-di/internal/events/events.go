// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events implements kubectl di events.
package events

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/document"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// options are the flags of the command.
type options struct {
	*cli.Env
	warnings bool
	output   cli.Data
}

// NewCommand returns kubectl di events.
func NewCommand(env *cli.Env) *cobra.Command {
	o := &options{Env: env}
	command := env.NewJobCommand(cli.Help{
		Use: "events JOB", Short: "Print the events of a job and its pods",
		Long: `Print the events of a job and its pods that the API server still keeps, the oldest first.

describe shows the same events of the job, and of its pods the warnings.`,
		Example: `  # What has happened to job pong
  kubectl di events pong

  # Only what went wrong
  kubectl di events pong --warnings`,
	}, o.run)
	command.SuggestFor = []string{"event", "status", "why"}
	command.Flags().BoolVar(&o.warnings, "warnings", false, "only warnings")
	o.output.Bind(command, "print the events")
	return command
}

func (o *options) run(ctx context.Context, name string) error {
	found, job, err := o.ConnectJob(ctx, name)
	if err != nil {
		return err
	}
	observed := &jobview.Observed{Job: job, Now: time.Now()}
	if observed.Pods, err = found.Pods(ctx, job); err != nil {
		return err
	}
	if observed.Events, err = Of(ctx, found, observed); err != nil {
		return err
	}
	all := jobview.Of(observed).Events
	if o.warnings {
		all = slices.DeleteFunc(all, func(event jobview.Event) bool { return event.Type != corev1.EventTypeWarning })
	}
	switch {
	case !o.output.IsText():
		return o.output.Print(o.Out, document.Events(all))
	case len(all) == 0:
		fmt.Fprintf(o.ErrOut, "kubectl-di: the API server keeps no such events of job %s/%s\n", job.Namespace, job.Name)
		return nil
	}
	rows := cli.Table{{"AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"}}
	for i := range all {
		event := &all[i]
		age, about := replicas.Age(observed.Now, event.At), "job"
		if event.Count > 1 {
			age += fmt.Sprintf(" (x%d)", event.Count)
		}
		if event.Pod != "" {
			about = "pod " + event.Pod
		}
		rows = append(rows, []string{age, event.Type, event.Reason, about, event.Message})
	}
	var out bytes.Buffer
	rows.Write(&out, "")
	_, err = o.Out.Write(out.Bytes())
	return err
}

// Of reads the Events of a job, and those of the pods of its namespace.
func Of(ctx context.Context, found *cluster.Cluster, observed *jobview.Observed) ([]*corev1.Event, error) {
	all, err := found.Events(ctx, observed.Job)
	if err == nil && len(observed.Pods) > 0 {
		var ofPods []corev1.Event
		ofPods, err = found.PodEvents(ctx, observed.Job.Namespace)
		all = append(all, ofPods...)
	}
	events := make([]*corev1.Event, 0, len(all))
	for i := range all {
		events = append(events, &all[i])
	}
	return events, err
}
