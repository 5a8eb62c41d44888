// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// Timeout is the flag --timeout.
type Timeout struct {
	After time.Duration
	// Stall is the flag --fail-on-stall of a command that has it.
	Stall Stall
}

// Bind adds the flag.
func (t *Timeout) Bind(command *cobra.Command, usage string) {
	command.Flags().DurationVar(&t.After, "timeout", 0, usage)
	Before(command, func() error {
		if t.After < 0 {
			return Usagef("--timeout %s: want 0 or more", t.After)
		}
		return nil
	})
}

// Context returns a context with the timeout.
func (t *Timeout) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.After == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, t.After)
}

// Wait contains the flags --wait and --timeout.
type Wait struct {
	Timeout
	wait bool
}

// Bind adds the flags to a command.
func (w *Wait) Bind(command *cobra.Command, until string) {
	command.Flags().BoolVar(&w.wait, "wait", false, "wait until "+until)
	w.Timeout.Bind(command, "wait no longer than this; 0 for as long as it takes with --wait, and not at all without")
}

// IsOn reports whether the command waits.
func (w *Wait) IsOn() bool { return w.wait || w.After > 0 }

// Until waits for jobs, all at once. The progress function returns the subject and state of a job,
// and whether the state is the desired one.
func (t *Timeout) Until(ctx context.Context, found *cluster.Cluster, out io.Writer, jobs []*v2alpha1.DIJob,
	progress func(*v2alpha1.DIJob) (subject, state string, done bool, err error),
) error {
	return t.Each(ctx, out, len(jobs), func(ctx context.Context, report *Progress, i int) error {
		job, last := jobs[i], "its state is unknown"
		watching, stalling := t.Stall.Watch(ctx)
		err := found.FollowJob(watching, job, report.Say, func(now *v2alpha1.DIJob) (bool, error) {
			stalling.See(now)
			subject, state, done, err := progress(now)
			if err == nil {
				last = state
				report.State(subject, state)
			}
			*job = *now
			return done, err
		})
		if stuck := stalling.End(); stuck != nil {
			return stuck
		}
		return Stopped(ctx, err, fmt.Sprintf("waiting for job %s/%s, which continues: %s", job.Namespace, job.Name, last))
	})
}

// Waiting is one of several waits, which reports its progress.
type Waiting func(ctx context.Context, report *Progress, i int) error

// Each runs a number of waits at once, with a common timeout and progress.
func (t *Timeout) Each(ctx context.Context, out io.Writer, count int, wait Waiting) error {
	ctx, cancel := t.Context(ctx)
	defer cancel()
	report := NewProgress(out)
	defer report.End()
	failures := make([]error, count)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() { failures[i] = wait(ctx, report, i) })
	}
	all.Wait()
	return Join(failures...)
}

// Stopped describes the error of a wait that the end of its context stopped. It returns other errors
// as they are.
func Stopped(ctx context.Context, err error, what string) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	err = errors.New("stopped " + what)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return With(TimedOut, err)
	}
	return err
}
