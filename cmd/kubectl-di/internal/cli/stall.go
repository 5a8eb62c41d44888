// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
)

// Stall is the flag --fail-on-stall. The zero value never fails.
type Stall struct{ After time.Duration }

// Bind adds the flag.
func (s *Stall) Bind(command *cobra.Command) {
	command.Flags().DurationVar(&s.After, "fail-on-stall", 0,
		"end with 1 when a job has been stuck for this long, such as 5m: a user must act, as list --stuck says; the job continues (default never)")
	Before(command, func() error {
		if s.After < 0 {
			return Usagef("--fail-on-stall %s: want 0 or more", s.After)
		}
		return nil
	})
}

// Stalling measures how long a job has been stuck, by the clock of this program alone.
type Stalling struct {
	after time.Duration
	end   context.CancelFunc

	mutex sync.Mutex
	timer *time.Timer
	job   *v2alpha1.DIJob
	isOut bool
}

// Watch returns a context that ends when a job has been stuck for as long as the flag says.
func (s *Stall) Watch(ctx context.Context) (context.Context, *Stalling) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, &Stalling{after: s.After, end: cancel}
}

// See takes the state of the job.
func (s *Stalling) See(job *v2alpha1.DIJob) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.job = job
	isStuck := s.after > 0 && jobview.IsStuck(job)
	switch {
	case !isStuck && s.timer != nil:
		s.timer.Stop()
		s.timer = nil
	case isStuck && s.timer == nil:
		s.timer = time.AfterFunc(s.after, s.expire)
	}
}

// expire ends the context. A timer that was stopped too late finds that the job is no longer stuck.
func (s *Stalling) expire() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.timer != nil && !s.isOut {
		s.isOut = true
		s.end()
	}
}

// End stops the measurement. It returns an error if the job was stuck for too long.
func (s *Stalling) End() error {
	s.end()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	if !s.isOut {
		return nil
	}
	summary := jobview.Summarize(s.job, jobview.Members{})
	waiting := jobview.WaitingOf(s.job, summary.GPUs)
	text := fmt.Sprintf("job %s/%s has been stuck for %s, and continues", s.job.Namespace, s.job.Name, s.after)
	if waiting == nil {
		return fmt.Errorf("%s: %s", text, cmp.Or(summary.Message, summary.Reason, string(summary.Phase)))
	}
	text += ": " + OneLine(waiting.Why)
	if len(waiting.Remedies) > 0 {
		text += "\nwhat would let it run:\n  " + strings.Join(waiting.Remedies, "\n  ")
	}
	return errors.New(text)
}
