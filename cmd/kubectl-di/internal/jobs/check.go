// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/webhook/podcheck"
)

// podsError is the refusal of the pods of a job.
type podsError struct{ text string }

// Error implements error.
func (e *podsError) Error() string { return e.text }

// tryPodsToo tries the pods of a job that the API server refuses, so that all findings come in one round. It reports only
// refusals: a job without defaults may have no pods to try.
func (o *creating) tryPodsToo(ctx context.Context, found *cluster.Cluster, job manifest) error {
	if err := o.tryPods(ctx, found, job, "has pods that"); errors.As(err, new(*podsError)) {
		return err
	}
	return nil
}

// tryPods has the API server try a pod of each task of a job that it has tried. It prints warnings,
// and returns an error if a pod would be refused.
func (o *creating) tryPods(ctx context.Context, found *cluster.Cluster, job manifest, what string) error {
	title := "job " + job.GetNamespace() + "/" + job.GetName()
	all, err := found.CheckPods(ctx, job.Unstructured, o.fieldValidation())
	if err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(job.source), err)
	}
	var refused, admitted []string
	for i := range all {
		task := &all[i]
		for _, warning := range task.Warnings {
			fmt.Fprintf(o.ErrOut, "Warning: task %s: %s\n", task.Task, warning)
		}
		switch {
		case task.Unchecked != "":
			fmt.Fprintf(o.ErrOut, "Warning: task %s: its pods cannot be checked: %s\n", task.Task, task.Unchecked)
		case len(task.Refused) > 0:
			refused = append(refused, refusalLines(task))
		default:
			admitted = append(admitted, task.Task)
		}
	}
	if len(refused) > 0 {
		return &podsError{fmt.Sprintf("%s: %s %s would be refused:\n%s", strings.TrimSpace(job.source), title, what, strings.Join(refused, "\n"))}
	}
	if o.objects.IsText() && len(admitted) > 0 {
		fmt.Fprintf(o.ErrOut, "%s: the pods would be created: %s\n", title, strings.Join(admitted, ", "))
	}
	return nil
}

// refusalLines returns the refusals of a task, one a line.
func refusalLines(task *podcheck.Findings) string {
	lines := []string{"  task " + task.Task + ":"}
	for _, finding := range task.Refused {
		lines = append(lines, "    "+finding.String())
	}
	return strings.Join(lines, "\n")
}
