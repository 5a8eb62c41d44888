// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
)

// outcome describes an answer with replicas.
type outcome struct {
	// asked is the requested number.
	asked int
	// what is the noun in the singular, done is the operation, and none is the text for a job
	// without replicas.
	what, done, none string
}

// printReplicas prints the replicas of an answer. An empty answer is a failure, because nothing was
// done.
func (c *call) printReplicas(about outcome, answer *diserver.Replicas) error {
	urls := slices.Concat(answer.Collectors, answer.Learners)
	if !c.output.IsText() {
		if err := c.output.Print(c.Out, answer.Raw); err != nil {
			return err
		}
	} else if len(urls) > 0 {
		fmt.Fprintf(c.Out, "%s: %s %s\n  %s\n", title(c.job), english.Plural(len(urls), about.what, ""), about.done, strings.Join(urls, "\n  "))
	}
	switch {
	case len(urls) == 0:
		return fmt.Errorf("%s %s", title(c.job), about.none)
	case len(urls) < about.asked:
		fmt.Fprintf(c.ErrOut, "kubectl-di: %d of the %d that were asked for: %s had no more\n", len(urls), about.asked, title(c.job))
	}
	return nil
}

// resizedJob is the size of a worker-led job.
type resizedJob struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Task      string `json:"task"`
	// Replicas is the desired total of all tasks.
	Replicas    int32  `json:"replicas"`
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// printResized prints the current desired size of a worker-led job, which its protocol does not
// return, and the part of the request that di-server did not grant.
func (c *call) printResized(ctx context.Context, by int32, message string) error {
	job, err := c.cluster.Job(ctx, c.job.Name)
	if err != nil {
		return fmt.Errorf("di-server has done it, but the desired size of the job now is not known: %w", err)
	}
	now := resizedJob{Namespace: job.Namespace, Job: job.Name, Replicas: job.Status.Replicas}
	if elastic := names.ElasticTask(&job.Spec); elastic >= 0 {
		now.Task = names.TaskName(&job.Spec.Tasks[elastic])
	}
	if elastic := job.Spec.Elastic; elastic != nil {
		now.MinReplicas, now.MaxReplicas = elastic.MinReplicas, elastic.MaxReplicas
	}
	text := fmt.Sprintf("%s: %+d for task %q: %s\n", title(job), by, now.Task, now.desired())
	_, granted, isLimited := strings.Cut(message, ": ")
	switch {
	case job.Spec.Preemptible:
		_, least, most := sizing.Range(job)
		now.MinReplicas, now.MaxReplicas = &least, &most
		text = fmt.Sprintf("%s: %+d for task %q: the allocator gives it %s replicas\n", title(job), by, now.Task, now.bounds())
	case isLimited:
		return c.printLimited(&now, fmt.Sprintf("%s: granted are %s: %s", title(job), granted, now.desired()),
			strings.HasPrefix(granted, "0 of "))
	case now.MinReplicas != nil || now.MaxReplicas != nil:
		text += fmt.Sprintf("  the operator keeps task %q at %s replicas\n", now.Task, now.bounds())
	}
	if !c.output.IsText() {
		return c.output.Print(c.Out, now)
	}
	_, err = fmt.Fprint(c.Out, text)
	return err
}

// printLimited prints how much of the request was granted. If nothing was granted, it returns an
// error.
func (c *call) printLimited(now *resizedJob, text string, isNothing bool) error {
	out := c.Out
	if !c.output.IsText() {
		if err := c.output.Print(c.Out, now); err != nil {
			return err
		}
		text, out = "kubectl-di: "+text, c.ErrOut
	}
	if isNothing {
		return errors.New(strings.TrimPrefix(text, "kubectl-di: "))
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// desired returns the desired number of replicas.
func (r *resizedJob) desired() string {
	return english.Plural(int(r.Replicas), "replica", "") + " desired in all tasks"
}

// bounds returns the limits of the task's number of replicas.
func (r *resizedJob) bounds() string {
	if r.MaxReplicas == nil {
		return fmt.Sprintf("%d or more", ptr.Deref(r.MinReplicas, 0))
	}
	return fmt.Sprintf("%d to %d", ptr.Deref(r.MinReplicas, 0), *r.MaxReplicas)
}
