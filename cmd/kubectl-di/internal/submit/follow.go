// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/terminal"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// follow reports the progress of the jobs until all have ended.
func (o *options) follow(ctx context.Context, found *cluster.Cluster, jobs []written) error {
	cancel := func() {}
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
	}
	defer cancel()
	out := o.streams.ErrOut
	if o.print.Form() == "" {
		out = o.streams.Out
	}
	told := terminal.NewProgress(out)
	defer told.End()
	failures := make([]error, len(jobs))
	var all sync.WaitGroup
	for i, job := range jobs {
		one := &follower{cluster: found, told: told, job: job, shown: map[types.UID]bool{}}
		all.Go(func() { failures[i] = one.follow(ctx) })
	}
	all.Wait()
	return errors.Join(failures...)
}

// follower reports the progress of one job.
type follower struct {
	cluster *cluster.Cluster
	told    *terminal.Progress
	job     written

	mutex sync.Mutex
	shown map[types.UID]bool
	state string
}

// follow follows the job to its end, and its events beside it.
func (f *follower) follow(ctx context.Context) error {
	beside, end := context.WithCancel(ctx)
	var events sync.WaitGroup
	events.Go(func() {
		if err := f.cluster.FollowEvents(beside, f.job, f.told.Say, f.event); err != nil && beside.Err() == nil {
			f.told.Say(f.title() + ": its events cannot be shown: " + err.Error())
		}
	})
	var last *v2alpha1.DIJob
	err := f.cluster.FollowJob(ctx, f.job.GetNamespace(), f.job.GetName(), f.told.Say, func(job *v2alpha1.DIJob) (bool, error) {
		if job.UID != f.job.GetUID() {
			return false, fmt.Errorf("%s is gone: another has its name now", f.title())
		}
		last = job
		return f.seen(job), nil
	})
	end()
	events.Wait()
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("stopped to watch %s, which goes on: %s", f.title(), f.state)
	case err != nil:
		return err
	}
	return f.ended(ctx, last)
}

// seen tells the state of the job, and returns whether it has ended.
func (f *follower) seen(job *v2alpha1.DIJob) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if state := stateOf(job); state != f.state {
		f.state = state
		f.told.State(f.title(), state)
	}
	return job.Status.Phase == v2alpha1.JobSucceeded || job.Status.Phase == v2alpha1.JobFailed
}

// event tells an event once.
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
	f.told.Say(fmt.Sprintf("%s: %s %s: %s", f.title(), kind, event.Reason, oneLine(event.Message)))
}

// ended tells the events that came with the end, and returns how it ended.
func (f *follower) ended(ctx context.Context, job *v2alpha1.DIJob) error {
	// Who may not list events was told so.
	if events, err := f.cluster.Events(ctx, job); err == nil {
		for i := range events {
			f.event(&events[i])
		}
	}
	if job.Status.Phase == v2alpha1.JobFailed {
		return fmt.Errorf("%s has failed%s", f.title(), whyFailed(job))
	}
	return nil
}

func (f *follower) title() string {
	return "job " + f.job.GetNamespace() + "/" + f.job.GetName()
}

// whyFailed says why a job has failed, as far as its status tells.
func whyFailed(job *v2alpha1.DIJob) string {
	var why strings.Builder
	failed := conditions.Find(&job.Status, string(v2alpha1.JobFailed))
	if failed != nil && failed.Status == corev1.ConditionTrue && failed.Message != "" {
		fmt.Fprintf(&why, ": %s (%s)", oneLine(failed.Message), failed.Reason)
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
			fmt.Fprintf(&why, ": %s", oneLine(failure.Message))
		}
	}
	return why.String()
}

// stateOf says in a line how far a job is.
func stateOf(job *v2alpha1.DIJob) string {
	status := &job.Status
	phase := string(status.Phase)
	if phase == "" {
		phase = "submitted, and not seen by the operator yet"
	}
	parts := []string{phase}
	if ptr.Deref(job.Spec.Suspend, false) {
		parts = append(parts, "suspended")
	}
	if status.Replicas > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d replicas ready", status.ReadyReplicas, status.Replicas))
	}
	for _, task := range slices.Sorted(maps.Keys(status.TaskStatus)) {
		if counts := countsOf(status.TaskStatus[task]); counts != "" {
			parts = append(parts, task+": "+counts)
		}
	}
	if status.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("restarts: %d", status.Restarts))
	}
	return strings.Join(parts, "; ")
}

func countsOf(pods v2alpha1.TaskStatus) string {
	var counts []string
	for _, phase := range slices.Sorted(maps.Keys(pods)) {
		if pods[phase] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", pods[phase], phase))
		}
	}
	return strings.Join(counts, ", ")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
