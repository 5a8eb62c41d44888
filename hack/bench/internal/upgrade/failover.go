// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// failoverLimit is the maximum time that jobs wait for the successor of a killed operator. A
// standby checks every 2 to 4.4 seconds whether the lease of 15 seconds has expired, and then syncs
// its caches.
const failoverLimit = 25 * time.Second

// placeInterval is the interval at which the benchmark checks whether a job has a pod.
const placeInterval = 20 * time.Millisecond

const failoverNotes = `
Of two operators the elected one is ended, and a job is submitted at once, and again until it is admitted. Measured is the time from the signal to
the job's first pod, which is the other operator's. Then the one that was ended is started again.
`

// succession is a way in which the leader is replaced by another operator.
type succession struct {
	name string
	// end ends the leader; nil if no operator is ended.
	end  func(*program.Process) error
	took []time.Duration
}

// runFailover measures how long jobs wait when the leader is gone.
func (b *bench) runFailover(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newRunning(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	run := &failoverRun{world: w}
	all := []*succession{
		{name: "no operator was ended"},
		{name: "stopped by SIGTERM", end: (*program.Process).Stop},
		{name: "killed by SIGKILL", end: (*program.Process).Kill},
	}
	// The first job waits until the first leader reconciles.
	if _, err := run.place(ctx, time.Now()); err != nil {
		return nil, err
	}
	for _, one := range all {
		for round := range b.rounds {
			w.Say("%s: round %d", one.name, round+1)
			took, err := run.succeed(ctx, one)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
			one.took = append(one.took, took)
		}
	}
	return printSuccessions(b, all)
}

func printSuccessions(b *bench, all []*succession) (missed figures.Limits, err error) {
	table := b.Table(0)
	fmt.Fprintln(table, "the elected operator\ttimes\tshortest\tmedian\tlongest")
	for _, one := range all {
		of := func(percent float64) string { return figures.Seconds(figures.Percentile(one.took, percent)) }
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", one.name, len(one.took), of(0), of(50), of(100))
		missed.Under(figures.Percentile(one.took, 100), failoverLimit, one.name+": until the first pod")
	}
	if err := table.Flush(); err != nil {
		return nil, fmt.Errorf("printing: %w", err)
	}
	fmt.Fprint(b.Out, failoverNotes)
	return missed, nil
}

// failoverRun is a run of the section.
type failoverRun struct {
	*world
	// elected is the index of the leader.
	elected int
	// jobs is the number of submitted jobs.
	jobs int
}

// succeed ends the leader, returns the time until another operator has acted, and restarts the
// first one.
func (r *failoverRun) succeed(ctx context.Context, by *succession) (took time.Duration, err error) {
	if by.end == nil {
		return r.place(ctx, time.Now())
	}
	before, err := r.holder(ctx)
	if err != nil {
		return 0, err
	}
	err = r.operators.replace(ctx, r.elected, func(process *program.Process) error {
		ended, began := make(chan error, 1), time.Now()
		go func() { ended <- by.end(process) }()
		var err error
		took, err = r.place(ctx, began)
		return errors.Join(err, <-ended)
	})
	if err != nil {
		return 0, err
	}
	after, err := r.holder(ctx)
	if err == nil && after == before {
		err = errors.New("another operator was ended than the elected one")
	}
	r.elected = 1 - r.elected
	return took, err
}

// place submits a job and returns the time from since until it has a pod.
func (r *failoverRun) place(ctx context.Context, since time.Time) (time.Duration, error) {
	job, err := newJob(jobName(r.jobs), jobBytes)
	if err != nil {
		return 0, err
	}
	r.jobs++
	var last error
	isStored := false
	err = wait.PollUntilContextTimeout(ctx, placeInterval, harness.Patience, true, func(ctx context.Context) (bool, error) {
		if !isStored {
			last = r.API.Create(ctx, job.DeepCopy())
			isStored = client.IgnoreAlreadyExists(last) == nil
			return false, nil
		}
		last = r.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: names.CoordinatorPod(job.GetName())}, &corev1.Pod{})
		return last == nil, client.IgnoreNotFound(last)
	})
	if err != nil {
		return 0, fmt.Errorf("waiting for the first pod of job %s: %w", job.GetName(), errors.Join(err, last))
	}
	return time.Since(since), nil
}

// holder returns the name of the leader.
func (r *failoverRun) holder(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	if err := r.API.Get(ctx, client.ObjectKey{Namespace: names.SystemNamespace, Name: controlplane.OperatorLease}, &lease); err != nil {
		return "", fmt.Errorf("reading who is elected: %w", err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}
