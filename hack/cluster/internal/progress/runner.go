// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Step is one step of a command.
type Step struct {
	// Name describes the step, such as "build etcd v3.6.16".
	Name string
	// Expected is the duration on a machine with 2 cores; 0 if the step is already done.
	Expected time.Duration
	// Skip skips the step because it is already done.
	Skip bool
	// Share returns the completed share of a running step. If nil, the share is estimated from the
	// time.
	Share func() float64
	// Run runs the step. It must be repeatable because an earlier run may have been interrupted at
	// any point.
	Run func(context.Context) error
}

// Runner runs steps and reports to a writer.
type Runner struct {
	out   io.Writer
	every time.Duration
	// began is the start of the first step. total, done and elapsed are the arguments of Left.
	began                time.Time
	total, done, elapsed time.Duration
}

// NewRunner returns a runner that reports on a long step at an interval.
func NewRunner(out io.Writer, every time.Duration) *Runner {
	return &Runner{out: out, every: every}
}

// Run runs the steps in order and stops at the first error. The estimate includes the duration of
// the caller's later work.
func (r *Runner) Run(ctx context.Context, steps []Step, afterwards time.Duration) error {
	r.began, r.total, r.done, r.elapsed = time.Now(), afterwards, 0, 0
	for _, step := range steps {
		if !step.Skip {
			r.total += step.Expected
		}
	}
	if len(steps) == 0 {
		return nil
	}
	r.printf("steps: %d%s on a machine with 2 cores\n", len(steps), r.left())
	for i, step := range steps {
		prefix := fmt.Sprintf("[%*d/%d] %s", len(strconv.Itoa(len(steps))), i+1, len(steps), step.Name)
		if step.Skip {
			r.printf("%s: is there\n", prefix)
			continue
		}
		began := time.Now()
		if err := r.runStep(ctx, &step, prefix); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
		r.printf("%s: done in %s (%s so far%s)\n", prefix, Human(time.Since(began)), Human(time.Since(r.began)), r.left())
	}
	return nil
}

func (r *Runner) runStep(ctx context.Context, step *Step, prefix string) error {
	began, done := time.Now(), r.done
	finished := make(chan error, 1)
	go func() { finished <- step.Run(ctx) }()
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case err := <-finished:
			r.done, r.elapsed = done+step.Expected, time.Since(r.began)
			return err
		case <-ticker.C:
			running := time.Since(began)
			r.done, r.elapsed = done+min(running, step.Expected), time.Since(r.began)
			if step.Share != nil {
				r.done = done + time.Duration(min(step.Share(), 1)*float64(step.Expected))
			}
			r.printf("%s: running for %s%s\n", prefix, Human(running), r.left())
		}
	}
}

// left formats the remaining time, or returns "" if it is short.
func (r *Runner) left() string {
	left := Left(r.total, r.done, r.elapsed)
	if left < time.Second {
		return ""
	}
	return fmt.Sprintf(", about %s left", Human(left))
}

// printf prints and ignores errors, so that the steps also run without a reader.
func (r *Runner) printf(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format, args...) }
