// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// follow reports the progress of jobs until all have finished.
func (o *creating) follow(ctx context.Context, found *cluster.Cluster, jobs []manifest) error {
	out := o.ErrOut
	if o.objects.IsText() {
		out = o.Out
	}
	return o.timeout.Each(ctx, out, len(jobs), func(ctx context.Context, report *cli.Progress, i int) error {
		job := jobs[i]
		title, prefix := "job "+job.GetNamespace()+"/"+job.GetName(), ""
		if len(jobs) > 1 {
			prefix = job.GetName() + " "
		}
		one := &follower{
			cluster: found, report: report, job: job, stall: &o.timeout.Stall, title: title, shown: map[types.UID]bool{},
			log: &firstLog{cluster: found, say: report.Say, title: title, prefix: prefix},
		}
		return one.follow(ctx)
	})
}

// follower reports the progress of one job.
type follower struct {
	cluster *cluster.Cluster
	report  *cli.Progress
	job     manifest
	stall   *cli.Stall
	title   string
	log     *firstLog

	mutex sync.Mutex
	shown map[types.UID]bool
}

// follow reports the job's progress until it has finished, its Events, and the log of its first replica.
func (f *follower) follow(ctx context.Context) error {
	beside, end := context.WithCancel(ctx)
	var events sync.WaitGroup
	events.Go(func() {
		if err := f.cluster.FollowEvents(beside, f.job, f.report.Say, f.event); err != nil && beside.Err() == nil {
			f.report.Say(f.title + ": its events cannot be shown: " + err.Error())
		}
	})
	last := &v2alpha1.DIJob{}
	watching, stalling := f.stall.Watch(ctx)
	err := f.cluster.FollowJob(watching, f.job, f.report.Say, func(job *v2alpha1.DIJob) (bool, error) {
		last = job
		stalling.See(job)
		f.report.State(f.title, stateOf(job))
		f.log.begin(ctx, job)
		return replicas.IsFinished(job), nil
	})
	stuck := stalling.End()
	f.log.end(ctx, err == nil && stuck == nil)
	end()
	events.Wait()
	if stuck != nil {
		return stuck
	}
	if err != nil {
		return cli.Stopped(ctx, err, "watching "+f.title+", which continues: "+stateOf(last))
	}
	return f.ended(ctx, last)
}

// event prints an Event once.
func (f *follower) event(event *corev1.Event) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.shown[event.UID] {
		return
	}
	f.shown[event.UID] = true
	kind := "event"
	if event.Type == corev1.EventTypeWarning {
		kind = "warning"
	}
	f.report.Say(fmt.Sprintf("%s: %s %s: %s", f.title, kind, event.Reason, cli.OneLine(event.Message)))
}

// ended prints the last Events of the job, and returns an error if it failed.
func (f *follower) ended(ctx context.Context, job *v2alpha1.DIJob) error {
	// If the user may not list Events, that was reported above.
	if events, err := f.cluster.Events(ctx, job); err == nil {
		for i := range events {
			f.event(&events[i])
		}
	}
	if job.Status.Phase == v2alpha1.JobFailed {
		return fmt.Errorf("%s has failed%s", f.title, whyFailed(job))
	}
	return nil
}

// whyFailed returns why a job has failed, from its status.
func whyFailed(job *v2alpha1.DIJob) string {
	var why strings.Builder
	failed := conditions.Find(&job.Status, string(v2alpha1.JobFailed))
	if failed != nil && failed.Status == corev1.ConditionTrue && failed.Message != "" {
		fmt.Fprintf(&why, ": %s (%s)", cli.OneLine(failed.Message), failed.Reason)
	}
	if failure := job.Status.LastFailure; failure != nil {
		fmt.Fprintf(&why, "\nthe last failure was of pod %s", failure.Pod)
		if failure.ExitCode != nil {
			fmt.Fprintf(&why, ", with exit code %d", *failure.ExitCode)
		}
		if failure.Reason != "" {
			fmt.Fprintf(&why, ", %s", failure.Reason)
		}
		if failure.Message != "" {
			fmt.Fprintf(&why, ": %s", cli.OneLine(failure.Message))
		}
	}
	return why.String()
}

// stateOf returns the state of a job on one line.
func stateOf(job *v2alpha1.DIJob) string {
	status := &job.Status
	phase := string(status.Phase)
	if phase == "" {
		phase = "submitted, and not observed by the operator yet"
	}
	parts := []string{phase}
	if ptr.Deref(job.Spec.Suspend, false) {
		parts = append(parts, "suspended")
	}
	if s := jobview.Summarize(job, jobview.Members{}); status.Phase != "" && s.Desired > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d replicas ready", s.Ready, s.Desired))
	}
	for _, task := range slices.Sorted(maps.Keys(status.TaskStatus)) {
		if counts := replicas.Counts(status.TaskStatus[task]); counts != "" {
			parts = append(parts, task+": "+counts)
		}
	}
	if status.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("restarts: %d", status.Restarts))
	}
	return strings.Join(parts, "; ")
}
