// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

// The jobs of which each loses a pod.
const (
	stormJobs = 100
	stormPods = 20
)

const stormNotes = `
One pod of each of %d jobs of %d pods fails at the same time. From then on until the last pod of the next attempt runs, as the
kubelet wrote it; the plain client deletes the pods of each job, then creates them anew, as many at a time and at the same rate.
Seen running is when the status of all jobs says so.
`

// runStorm measures how long it takes until all jobs run again of which one pod
// failed each, and what is left then.
func runStorm(ctx context.Context, b *bench) (missed figures.Limits, err error) {
	w, err := newWorld(ctx, b)
	if err != nil {
		return nil, err
	}
	defer errs(&err, w.stop)
	if err := w.startOperator(ctx); err != nil {
		return nil, err
	}
	jobs := jobsOf(oursNamespace, "storm", stormJobs, stormPods)
	if err := w.submitAll(ctx, jobs, nil); err != nil {
		return nil, err
	}
	if err := w.waitRunning(ctx, oursNamespace, stormJobs, stormJobs*stormPods); err != nil {
		return nil, err
	}
	ours, seen, found, asked, err := w.storm(ctx, jobs)
	if err != nil {
		return nil, err
	}
	plain, plainAsked, err := w.plainStorm(ctx, jobs)
	if err != nil {
		return nil, err
	}
	table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "who\tall run after\tratio\tseen running\tnot running\tduplicates\torphans\twrong ranks\tof an earlier attempt\trestarts\t")
	once := found.restartsOtherThan(1)
	fmt.Fprintf(table, "operator\t%s\t%.2f\t%s\t%d\t%d\t%d\t%d\t%d\t%d of %d jobs 1\t\n", figures.Seconds(ours), ours.Seconds()/plain.Seconds(), figures.Seconds(seen),
		found.notRunning, found.duplicates, found.orphans, found.strangers, found.stale, stormJobs-once, stormJobs)
	fmt.Fprintf(table, "plain client\t%s\t1\t-\t-\t-\t-\t-\t-\t-\t\n", figures.Seconds(plain))
	err = table.Flush()
	fmt.Fprintf(b.out, stormNotes+"Requests of the operator: %s\nRequests of the plain client: %s\n", stormJobs, stormPods, asked, plainAsked)
	missed.Require(found.faults() == 0, "%d faults, such as: %s", found.faults(), found.first)
	missed.Require(once == 0, "%d jobs do not have exactly 1 restart", once)
	return missed, err
}

// restartsOtherThan counts the jobs that were not restarted so often.
func (f *findings) restartsOtherThan(wanted int32) int {
	others := 0
	for _, restarts := range f.restarts {
		if restarts != wanted {
			others++
		}
	}
	return others
}

// storm lets a pod of each job fail and waits until all run again.
func (w *world) storm(ctx context.Context, jobs []*v2alpha1.DIJob) (ours, seen time.Duration, found *findings, asked controlplane.Requests, err error) {
	mark, err := w.waitQuiet(ctx, limitPause)
	if err != nil {
		return 0, 0, nil, nil, err
	}
	random := rand.New(rand.NewPCG(w.seed, 0))
	wanted := map[string]int{}
	group, failing := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	began := time.Now()
	for _, job := range jobs {
		wanted[job.Name] = stormPods
		key := types.NamespacedName{Namespace: job.Namespace, Name: names.WorkerPod(job.Name, taskName, random.Int32N(stormPods))}
		group.Go(func() error {
			did, err := w.kubelet.fail(failing, key)
			if err == nil && !did {
				err = fmt.Errorf("pod %s does not run and cannot fail", key)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, 0, nil, nil, err
	}
	// A pod that failed is never ready again, so these are those of the next attempts.
	last, err := w.waitReady(ctx, oursNamespace, len(jobs)*stormPods)
	if err != nil {
		return 0, 0, nil, nil, err
	}
	err = w.waitJobs(ctx, oursNamespace, len(jobs), "jobs running again", func(job *v2alpha1.DIJob) bool {
		return job.Status.Restarts > 0 && job.Status.Phase == v2alpha1.JobRunning && job.Status.ReadyReplicas == stormPods
	})
	if err != nil {
		return 0, 0, nil, nil, err
	}
	seen = time.Since(began)
	counts, err := w.Since(mark)
	if err != nil {
		return 0, 0, nil, nil, err
	}
	if _, err := w.waitQuiet(ctx, time.Second); err != nil {
		return 0, 0, nil, nil, err
	}
	found, err = w.inspect(ctx, wanted)
	return last.Sub(began), seen, found, counts[userOperator], err
}

// plainStorm lets the plain client delete and create the same pods.
func (w *world) plainStorm(ctx context.Context, jobs []*v2alpha1.DIJob) (time.Duration, controlplane.Requests, error) {
	twins, err := w.twinsOf(ctx, jobs)
	if err != nil {
		return 0, nil, err
	}
	if err := w.stopOperator(); err != nil {
		return 0, nil, err
	}
	if err := w.clear(ctx); err != nil {
		return 0, nil, err
	}
	if err := w.standBy(ctx); err != nil {
		return 0, nil, err
	}
	plain, err := w.newPlainClient(defaultQPS, defaultBurst)
	if err != nil {
		return 0, nil, err
	}
	if err := plain.createAll(ctx, w, twins); err != nil {
		return 0, nil, err
	}
	pods := len(jobs) * stormPods
	if _, err := w.waitReady(ctx, plainNamespace, pods); err != nil {
		return 0, nil, err
	}
	mark, err := w.waitQuiet(ctx, limitPause)
	if err != nil {
		return 0, nil, err
	}
	began := time.Now()
	if err := plain.recreateAll(ctx, twins); err != nil {
		return 0, nil, err
	}
	// That the first generation is gone is known, as their names are the second's.
	last, err := w.waitReady(ctx, plainNamespace, pods)
	if err != nil {
		return 0, nil, err
	}
	counts, err := w.Since(mark)
	return last.Sub(began), counts[userPlain], err
}
