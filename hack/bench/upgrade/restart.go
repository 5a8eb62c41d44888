// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/figures"
	"opendilab.org/di-orchestrator/hack/bench/internal/pace"
	"opendilab.org/di-orchestrator/hack/bench/internal/program"
)

const restartNotes = `
Two operators, elected, behind a stand-in for their Service: new connections lead to those of which the last readiness probe, every
%s, succeeded, %s after it; connections that exist stay. Each operator in turn is sent SIGTERM, or for reference SIGKILL, and started
again; the next one goes when the Service leads to that. Each GET at v1alpha1 is converted, each create (without being stored) is
converted, defaulted and validated. No call is tried again.
`

// users are the calls of others at the version that is not stored: each has to be
// converted, and some are admitted.
func (w *world) users(stored int) load {
	return load{
		{Name: "GET v1alpha1", Every: time.Second / time.Duration(w.rate), Call: func(ctx context.Context, number int) error {
			return w.others.get(ctx, v1alpha1.Version, jobName(number%stored))
		}},
		{Name: "LIST v1alpha1", Every: time.Second, Call: func(ctx context.Context, _ int) error {
			return w.others.list(ctx, v1alpha1.Version, listLimit)
		}},
		{Name: "create v1alpha1", Every: time.Second / 10, Call: func(ctx context.Context, number int) error {
			return w.others.create(ctx, number)
		}},
	}
}

// listLimit is how many jobs a list has at most.
const listLimit = 200

// atRest measures the load while nothing is done.
func (w *world) atRest(ctx context.Context, calls load, name string) (phase, error) {
	w.say("measuring at rest")
	return calls.during(name, true, func() error { return pace.Pause(ctx, w.rest) })
}

// runRestart measures what is noticed of restarts of the operators.
func runRestart(ctx context.Context, b *bench) (missed figures.Limits, err error) {
	w, err := newRunning(ctx, b)
	if err != nil {
		return nil, err
	}
	defer errs(&err, w.stop)
	if err := w.makeJobs(ctx, b.jobs); err != nil {
		return nil, err
	}
	calls := w.users(b.jobs)
	calls.start(ctx)
	defer calls.stop()
	rest, err := w.atRest(ctx, calls, "at rest")
	if err != nil {
		return nil, err
	}
	stopped, err := calls.during(fmt.Sprintf("%d rolling restarts", b.rounds), true, func() error {
		return w.restartAll(ctx, b.rounds, (*program.Process).Stop)
	})
	if err != nil {
		return nil, err
	}
	killed, err := calls.during("reference: one by SIGKILL", false, func() error {
		return w.restartAll(ctx, 1, killed(ctx))
	})
	if err != nil {
		return nil, err
	}
	missed, err = calls.print(b, []phase{rest, stopped, killed})
	fmt.Fprintf(b.out, restartNotes, probePeriod, endpointDelay)
	return missed, err
}

func (w *world) restartAll(ctx context.Context, rounds int, end func(*program.Process) error) error {
	for round := range rounds {
		w.say("restarting the operators, round %d", round+1)
		if err := w.operators.restart(ctx, end); err != nil {
			return err
		}
	}
	return nil
}
