// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// minRetry and maxRetry are the times between attempts while the database fails.
const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// Retry repeats what fails, and reports that.
type Retry struct {
	Metrics *Metrics
	Clock   clock.Clock
	Log     logr.Logger
}

// Do repeats an action of a step until it succeeds. It reports false if the context ended.
func (r *Retry) Do(ctx context.Context, step Step, complaint string, act func(context.Context) error) bool {
	delays := wait.Backoff{Duration: minRetry, Factor: 2, Steps: 64, Cap: maxRetry}
	for {
		err := act(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		r.Metrics.failures.WithLabelValues(string(step)).Inc()
		r.Log.Error(err, complaint, r.Metrics.waiting()...)
		if !pause(ctx, r.Clock, delays.Step()) {
			return false
		}
	}
}

// pause reports false if the context ended.
func pause(ctx context.Context, clock clock.Clock, delay time.Duration) bool {
	timer := clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
