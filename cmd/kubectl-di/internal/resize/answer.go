// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/names"
)

// outcome says what an answer with replicas is about.
type outcome struct {
	// wanted is how many were asked for.
	wanted int
	// what they are, in the singular.
	what string
	// done is what happens to them.
	done string
	// none is the text for a job without any.
	none string
}

// printReplicas prints the replicas that a request was answered with. None at
// all is a failure, as nothing was done.
func (c *conversation) printReplicas(command *cobra.Command, about outcome, answer *diserver.Replicas) error {
	out := command.OutOrStdout()
	urls := append(append([]string{}, answer.Collectors...), answer.Learners...)
	if !c.output.IsText() {
		if err := c.output.Print(out, answer.Raw); err != nil {
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
// not answer with, and what di-server says of what it did not grant.
func (c *conversation) printResized(command *cobra.Command, by int32, message string) error {
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
	if job.Spec.Preemptible {
		_, least, most := sizing.Range(job)
		now.MinReplicas, now.MaxReplicas = &least, &most
	}
	_, granted, limited := strings.Cut(message, ": ")
	if limited && !job.Spec.Preemptible {
		return c.printLimited(command, &now, granted)
	}
	out := command.OutOrStdout()
	switch {
	case !c.output.IsText():
		return c.output.Print(out, now)
	case job.Spec.Preemptible:
		fmt.Fprintf(out, "%s: %+d for task %q: the allocator gives it %s replicas\n", c.title(), by, now.Task, now.bounds())
		return nil
	}
	fmt.Fprintf(out, "%s: %+d for task %q: %s\n", c.title(), by, now.Task, now.wanted())
	if now.MinReplicas != nil || now.MaxReplicas != nil {
		fmt.Fprintf(out, "  the operator keeps task %q at %s replicas\n", now.Task, now.bounds())
	}
	return nil
}

// printLimited prints how much was granted of what was asked for. Nothing at all
// is a failure, as nothing was done.
func (c *conversation) printLimited(command *cobra.Command, now *resizedJob, granted string) error {
	text := fmt.Sprintf("%s: granted are %s: %s", c.title(), granted, now.wanted())
	isNothing := strings.HasPrefix(granted, "0 of ")
	switch {
	case !c.output.IsText():
		if err := c.output.Print(command.OutOrStdout(), now); err != nil {
			return err
		}
		if !isNothing {
			fmt.Fprintln(command.ErrOrStderr(), "kubectl-di:", text)
		}
	case !isNothing:
		fmt.Fprintln(command.OutOrStdout(), text)
	}
	if isNothing {
		return errors.New(text)
	}
	return nil
}

// wanted says how many replicas the job wants now.
func (r *resizedJob) wanted() string {
	return counted(int(r.Replicas), "replica") + " wanted in all tasks"
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
