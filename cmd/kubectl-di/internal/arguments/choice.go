// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

// Choice says which jobs are meant: those that are named, or that labels select.
type Choice struct {
	names  []string
	labels string
}

// Bind adds the flag of labels to a command's.
func (c *Choice) Bind(flags *pflag.FlagSet) {
	flags.StringVarP(&c.labels, "selector", "l", "", "the jobs of the namespace that these labels select, in place of JOB")
}

// Parse reads the names, and says what is wrong with the choice.
func (c *Choice) Parse(args []string) error {
	var err error
	if c.names, err = Jobs(args); err != nil {
		return err
	}
	switch {
	case len(c.names) == 0 && c.labels == "":
		return exit.Usagef("JOB is missing: name DIJobs, see kubectl get dijobs, or select them by -l")
	case len(c.names) > 0 && c.labels != "":
		return exit.Usagef("JOB %q and -l exclude each other: they say in two ways which jobs", c.names[0])
	}
	if _, err := labels.Parse(c.labels); err != nil {
		return exit.Usagef("-l %q: %w", c.labels, err)
	}
	return nil
}

// Read reads the jobs. Its error is of those that could not be read.
func (c *Choice) Read(ctx context.Context, found *cluster.Cluster) ([]*v2alpha1.DIJob, error) {
	if len(c.names) == 0 {
		return c.selected(ctx, found)
	}
	var jobs []*v2alpha1.DIJob
	var failures []error
	for _, name := range c.names {
		job, err := found.Job(ctx, name)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		jobs = append(jobs, job)
	}
	return jobs, errors.Join(failures...)
}

func (c *Choice) selected(ctx context.Context, found *cluster.Cluster) ([]*v2alpha1.DIJob, error) {
	selector, err := labels.Parse(c.labels)
	if err != nil {
		return nil, exit.Usagef("-l %q: %w", c.labels, err)
	}
	selected, err := found.Jobs(ctx, selector)
	if err != nil {
		return nil, err
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("-l %s: selects no job of namespace %s", c.labels, found.Namespace)
	}
	jobs := make([]*v2alpha1.DIJob, len(selected))
	for i := range selected {
		jobs[i] = &selected[i]
	}
	return jobs, nil
}
