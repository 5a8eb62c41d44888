// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/internal/names"
)

// outcome says what an answer with replicas is about.
type outcome struct {
	// wanted is how many were asked for.
	wanted int
	// what they are, in the singular.
	what string
	// done is what becomes of them.
	done string
	// none is what a job is told of where there are none.
	none string
}

// printReplicas prints the replicas that a request was answered with. None at
// all is a failure, as nothing was done.
func (c *conversation) printReplicas(command *cobra.Command, about outcome, answer *diserver.Replicas) error {
	out := command.OutOrStdout()
	urls := append(append([]string{}, answer.Collectors...), answer.Learners...)
	if c.output == formatJSON {
		if err := printJSON(out, answer.Raw); err != nil {
			return err
		}
	} else if len(urls) > 0 {
		fmt.Fprintf(out, "%s: %s %s\n", c.title(), counted(len(urls), about.what), about.done)
		for _, url := range urls {
			fmt.Fprintln(out, "  "+url)
		}
	}
	switch {
	case len(urls) == 0:
		return fmt.Errorf("%s %s", c.title(), about.none)
	case len(urls) < about.wanted:
		fmt.Fprintf(command.ErrOrStderr(), "kubectl-di: %d of the %d that were asked for: %s had no more\n", len(urls), about.wanted, c.title())
	}
	return nil
}

// resizedJob is what is known of a worker-led job's size.
type resizedJob struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Task      string `json:"task"`
	// Replicas is the total of all tasks that is wanted.
	Replicas    int32  `json:"replicas"`
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// printResized prints what a worker-led job wants now, which its protocol does
// not answer with.
func (c *conversation) printResized(command *cobra.Command, by int32) error {
	job, err := c.cluster.Job(command.Context(), c.job.Name)
	if err != nil {
		return fmt.Errorf("di-server has done it, but what the job wants now is not known: %w", err)
	}
	now := resizedJob{Namespace: job.Namespace, Job: job.Name, Replicas: job.Status.Replicas}
	if elastic := names.ElasticTask(&job.Spec); elastic >= 0 {
		now.Task = names.TaskName(&job.Spec.Tasks[elastic])
	}
	if elastic := job.Spec.Elastic; elastic != nil {
		now.MinReplicas, now.MaxReplicas = elastic.MinReplicas, elastic.MaxReplicas
	}
	out := command.OutOrStdout()
	if c.output == formatJSON {
		return printJSON(out, now)
	}
	if job.Spec.Preemptible {
		fmt.Fprintf(out, "%s: %+d for task %q: the allocator gives it %s replicas\n", c.title(), by, now.Task, now.bounds())
		return nil
	}
	fmt.Fprintf(out, "%s: %+d for task %q: %s wanted in all tasks\n", c.title(), by, now.Task, counted(int(now.Replicas), "replica"))
	if now.MinReplicas != nil || now.MaxReplicas != nil {
		fmt.Fprintf(out, "  the operator keeps task %q at %s replicas\n", now.Task, now.bounds())
	}
	return nil
}

// bounds says between which numbers the task is kept.
func (r *resizedJob) bounds() string {
	if r.MaxReplicas == nil {
		return fmt.Sprintf("%d or more", ptr.Deref(r.MinReplicas, 0))
	}
	return fmt.Sprintf("%d to %d", ptr.Deref(r.MinReplicas, 0), *r.MaxReplicas)
}

// counted counts things whose plural is regular.
func counted(count int, what string) string {
	if count != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", count, what)
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("printing the answer: %w", err)
	}
	return nil
}
