// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const restartNotes = `
Two operators, and two replicas each of the webhooks and of di-server behind a stand-in for their Service: new connections lead to those of which the
last readiness probe, every %s, succeeded, %s after it; connections that exist stay. Each replica in turn is sent SIGTERM, or for
reference SIGKILL, and started again; the next one goes when the Service leads to that. Each GET at v1alpha1 is converted, each create
(without being stored) is converted, defaulted and validated. A coordinator polls every second, from an address of its own, by a new
connection each time. No call is tried again.
`

// users returns the calls of other clients at the version that is not stored. Each must be
// converted, and some are admitted.
func (w *world) users(stored int) load {
	return load{
		{Name: "GET v1alpha1", Every: time.Second / time.Duration(w.bench.rate), Call: func(ctx context.Context, number int) error {
			return w.others.get(ctx, v1alpha1.Version, jobName(number%stored))
		}},
		{Name: "LIST v1alpha1", Every: time.Second, Call: func(ctx context.Context, _ int) error {
			return w.others.list(ctx, v1alpha1.Version, listLimit)
		}},
		w.creator(),
	}
}

// creator creates jobs as dry runs.
func (w *world) creator() *pace.Prober {
	return &pace.Prober{Name: "create v1alpha1", Every: time.Second / 10, Call: func(ctx context.Context, number int) error {
		return w.others.create(ctx, number)
	}}
}

// listLimit is the maximum number of jobs in a list.
const listLimit = 200

// atRest measures the load without other activity.
func (w *world) atRest(ctx context.Context, calls load, name string) (phase, error) {
	w.Say("measuring at rest")
	return calls.during(name, true, func() error { return pace.Pause(ctx, w.bench.rest) })
}

// runRestart measures the effects of restarts on users.
func (b *bench) runRestart(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newRunning(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	if err := w.makeJobs(ctx, b.jobs); err != nil {
		return nil, err
	}
	if err := w.addressPods(ctx, coordinatorsOf(b.jobs)); err != nil {
		return nil, err
	}
	if err := w.startServers(ctx); err != nil {
		return nil, err
	}
	calls := append(w.users(b.jobs), newStrict(w.calls.address(), coordinatorsOf(b.jobs)).prober())
	calls.start(ctx)
	defer calls.stop()
	rest, err := w.atRest(ctx, calls, "at rest")
	if err != nil {
		return nil, err
	}
	phases := []phase{rest}
	for _, one := range []struct {
		name     string
		strict   bool
		of       *deployment
		rounds   int
		endingBy func(*program.Process) error
	}{
		{"webhooks, %d times", true, w.webhooks, b.rounds, (*program.Process).Stop},
		{"operators, %d times", true, w.operators, b.rounds, (*program.Process).Stop},
		{"di-servers, %d times", true, w.servers, b.rounds, (*program.Process).Stop},
		{"reference: webhooks by SIGKILL, %d time", false, w.webhooks, 1, killed(ctx)},
		{"reference: di-servers by SIGKILL, %d time", false, w.servers, 1, killed(ctx)},
	} {
		name := fmt.Sprintf(one.name, one.rounds)
		done, err := calls.during(name, one.strict, func() error { return w.restartAll(ctx, name, one.of, one.rounds, one.endingBy) })
		if err != nil {
			return nil, err
		}
		phases = append(phases, done)
	}
	missed, err = calls.print(b, phases)
	fmt.Fprintf(b.Out, restartNotes, probePeriod, endpointDelay)
	return missed, err
}

// coordinatorsOf returns the names of the coordinators' pods for the given number of jobs.
func coordinatorsOf(jobs int) []string {
	var pods []string
	for i := range jobs {
		pods = append(pods, names.CoordinatorPod(jobName(i)))
	}
	return pods
}

func (w *world) restartAll(ctx context.Context, name string, of *deployment, rounds int, end func(*program.Process) error) error {
	for round := range rounds {
		w.Say("restarting %s: round %d", name, round+1)
		if err := of.restart(ctx, end); err != nil {
			return err
		}
	}
	return nil
}
