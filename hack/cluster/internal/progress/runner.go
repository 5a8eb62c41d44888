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

// Step is one thing to do.
type Step struct {
	// Name says what is made, such as "kube-apiserver v1.36.3".
	Name string
	// Expected is how long it takes on a machine with 2 cores.
	Expected time.Duration
	// Done reports whether there is nothing to do. Nil means there always is.
	Done func() bool
	// Run does it. It has to be repeatable: an earlier run may have been
	// interrupted anywhere.
	Run func(context.Context) error
}

// Runner runs steps and reports to a writer.
type Runner struct {
	out   io.Writer
	every time.Duration
	now   func() time.Time
}

// NewRunner returns a runner that reports on a long step every so often.
func NewRunner(out io.Writer, every time.Duration) *Runner {
	return &Runner{out: out, every: every, now: time.Now}
}

// Run runs the steps in order and stops at the first error.
func (r *Runner) Run(ctx context.Context, steps []Step) error {
	started := r.now()
	works := plan(steps)
	if left := Left(works, 0); left > shortStep {
		r.printf("%d steps, about %s to go on a machine with 2 cores\n", len(steps), Human(left))
	}
	for i, step := range steps {
		prefix := fmt.Sprintf("[%*d/%d] %s", len(strconv.Itoa(len(steps))), i+1, len(steps), step.Name)
		if works[i].Skipped {
			r.printf("%s: is there\n", prefix)
			continue
		}
		began := r.now()
		if err := r.runStep(ctx, step, prefix, works); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
		works[i].Took, works[i].Done = r.now().Sub(began), true
		r.printf("%s: done in %s (%s so far%s)\n", prefix, Human(works[i].Took), Human(r.now().Sub(started)), describeLeft(Left(works, 0)))
	}
	return nil
}

// plan asks all steps at the beginning what there is to do, so that the first
// estimate is right. A step that was done already never becomes undone by a
// later one.
func plan(steps []Step) []Work {
	works := make([]Work, len(steps))
	for i, step := range steps {
		works[i].Expected = step.Expected
		works[i].Skipped = step.Done != nil && step.Done()
	}
	return works
}

func (r *Runner) runStep(ctx context.Context, step Step, prefix string, works []Work) error {
	if step.Expected >= shortStep {
		r.printf("%s: usually %s%s\n", prefix, Human(step.Expected), describeLeft(Left(works, 0)))
	}
	began := r.now()
	finished := make(chan error, 1)
	go func() { finished <- step.Run(ctx) }()
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case err := <-finished:
			return err
		case <-ticker.C:
			running := r.now().Sub(began)
			r.printf("%s: running for %s%s\n", prefix, Human(running), describeLeft(Left(works, running)))
		}
	}
}

func describeLeft(left time.Duration) string {
	if left < time.Second {
		return ""
	}
	return fmt.Sprintf(", about %s left", Human(left))
}

// printf reports on a best-effort basis: work goes on when nobody can read of it.
func (r *Runner) printf(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format, args...) }
