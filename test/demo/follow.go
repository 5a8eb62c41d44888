// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

const trainTimeout = 20 * time.Minute

// Result is the observed progress of a job.
type Result struct {
	// Name and Namespace identify the job.
	Name, Namespace string
	// Version is the API version in which the job was written.
	Version string
	// Phase is the job's last phase.
	Phase v2alpha1.Phase
	// Replicas is the maximum number of pods observed for each task.
	Replicas map[string]int32
	// Reward is the last mean return of the evaluation episodes, as printed.
	Reward string
	// Time is the duration of the job.
	Time time.Duration
}

// Finished reports whether the job has finished.
func (r *Result) Finished() bool {
	return r.Phase == v2alpha1.JobSucceeded || r.Phase == v2alpha1.JobFailed
}

// Follow reports the progress of the jobs until all have finished.
func (d *Demo) Follow(ctx context.Context, jobs []*unstructured.Unstructured) ([]Result, error) {
	d.step("Training")
	results := make([]Result, len(jobs))
	for i, job := range jobs {
		results[i] = Result{
			Name:      job.GetName(),
			Namespace: job.GetNamespace(),
			Version:   job.GroupVersionKind().Version,
			Replicas:  map[string]int32{},
		}
	}
	started := d.clock.Now()
	var drawn []string
	err := wait.PollUntilContextTimeout(ctx, pollInterval, trainTimeout, true, func(ctx context.Context) (bool, error) {
		for i := range results {
			if results[i].Finished() {
				continue
			}
			if err := d.observe(ctx, &results[i]); err != nil {
				return false, err
			}
			results[i].Time = d.clock.Since(started)
		}
		drawn = d.draw(results, drawn)
		return !slices.ContainsFunc(results, func(r Result) bool { return !r.Finished() }), nil
	})
	if err != nil {
		return results, fmt.Errorf("waiting for the jobs to finish: %w", err)
	}
	return results, nil
}

func (d *Demo) observe(ctx context.Context, result *Result) error {
	var job v2alpha1.DIJob
	if err := d.client.Get(ctx, client.ObjectKey{Namespace: result.Namespace, Name: result.Name}, &job); err != nil {
		return fmt.Errorf("reading job %s: %w", result.Name, err)
	}
	for task, pods := range job.Status.TaskStatus {
		var total int32
		for _, count := range pods {
			total += count
		}
		result.Replicas[task] = max(result.Replicas[task], total)
	}
	if reward, found := d.lastReward(ctx, &job); found {
		result.Reward = reward
	}
	result.Phase = job.Status.Phase
	return nil
}

// lastReward returns the mean return that the training pod printed last.
func (d *Demo) lastReward(ctx context.Context, job *v2alpha1.DIJob) (string, bool) {
	pod := names.WorkerPod(job.Name, string(v2alpha1.TaskTypeLearner), 0)
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		pod = names.CoordinatorPod(job.Name)
	}
	tail := int64(20)
	log, err := d.core.CoreV1().Pods(job.Namespace).
		GetLogs(pod, &corev1.PodLogOptions{TailLines: &tail, Container: names.Container}).DoRaw(ctx)
	if err != nil {
		// A pod that is not running has no log. The phase shows this.
		return "", false
	}
	rewards := rewardPattern().FindAllSubmatch(log, -1)
	if len(rewards) == 0 {
		return "", false
	}
	return string(rewards[len(rewards)-1][1]), true
}

func rewardPattern() *regexp.Regexp { return regexp.MustCompile(`\beval=([0-9.]+)`) }

// draw prints one line for each job. On a terminal it overwrites the previous lines, elsewhere it
// prints only changed lines. It returns the current lines.
func (d *Demo) draw(results []Result, before []string) []string {
	lines := make([]string, len(results))
	for i := range results {
		lines[i] = results[i].line()
	}
	if d.Terminal && before != nil {
		fmt.Fprintf(d.Out, "\x1b[%dA", len(lines))
	}
	for i, line := range lines {
		switch {
		case d.Terminal:
			fmt.Fprintf(d.Out, "\x1b[2K%s  %s\n", line, round(results[i].Time))
		case before == nil || before[i] != line:
			fmt.Fprintf(d.Out, "%s  %s\n", line, round(results[i].Time))
		}
	}
	return lines
}

func (r *Result) line() string {
	phase := string(r.Phase)
	if phase == "" {
		phase = "Submitted"
	}
	reward := r.Reward
	if reward == "" {
		reward = "-"
	}
	return fmt.Sprintf("  %-24s %-10s reward %7s  %s", r.Name, phase, reward, r.replicas())
}

func (r *Result) replicas() string {
	tasks := make([]string, 0, len(r.Replicas))
	for task, count := range r.Replicas {
		tasks = append(tasks, fmt.Sprintf("%d %s", count, task))
	}
	slices.Sort(tasks)
	return strings.Join(tasks, ", ")
}

func (d *Demo) printTable(results []Result) {
	d.step("Results")
	table := tabwriter.NewWriter(d.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "  JOB\tWRITTEN AS\tPHASE\tREPLICAS\tREWARD\tTIME")
	for _, r := range results {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Version, r.Phase, r.replicas(), r.Reward, round(r.Time))
	}
	// Out is a terminal or a buffer; a failing write cannot be reported.
	_ = table.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
