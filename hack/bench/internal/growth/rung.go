// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/jobs"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

const (
	// quietFor is the time without requests after which the programs are idle.
	quietFor = 2 * time.Second
	// pollsEvery is the interval between GETs of di-server.
	pollsEvery = 10 * time.Millisecond
	// jobBytes is about the size of a job of v1alpha1.
	jobBytes = 3000
)

// climb adds jobs until there are so many, and measures a row.
func (w *world) climb(ctx context.Context, jobs int) (*results.Rung, error) {
	row := &results.Rung{Jobs: jobs, Pods: jobs * podsOfJob}
	if err := w.grow(ctx, row); err != nil {
		return nil, err
	}
	if err := w.profile(ctx, jobs, "heap?gc=1"); err != nil {
		return nil, err
	}
	var err error
	if row.Heap, err = w.liveHeap(ctx); err != nil {
		return nil, err
	}
	if err := w.restAndTime(ctx, row); err != nil {
		return nil, err
	}
	w.Say("%d jobs: %s for a pod's requests, first pod %.0f ms", jobs, fmt.Sprintf("%.2f", row.PodRequests), row.FirstPod.P99*1000)
	return row, nil
}

// grow adds the jobs of a row, waits until all run and the programs are idle.
func (w *world) grow(ctx context.Context, row *results.Rung) error {
	mark, err := w.WaitQuiet(ctx, quietFor)
	if err != nil {
		return err
	}
	before, err := w.read(ctx)
	if err != nil {
		return err
	}
	existing := len(w.askers.served(namespace)) * 2
	w.Say("adding %d jobs", row.Jobs-existing)
	profiled, profiling := errgroup.WithContext(ctx)
	if row.Jobs > existing {
		profiled.Go(func() error { return w.profile(profiling, row.Jobs, "profile?seconds=10") })
	}
	err = w.SubmitAll(ctx, row.Jobs-existing, func(ctx context.Context, index int) error {
		return w.submit(ctx, namespace, existing+index)
	})
	if err := errors.Join(err, w.waitRunning(ctx, namespace, row.Pods), profiled.Wait()); err != nil {
		return err
	}
	row.Seconds = time.Since(before.at).Seconds()
	if _, err := w.WaitQuiet(ctx, quietFor); err != nil {
		return err
	}
	after, err := w.read(ctx)
	if err != nil {
		return err
	}
	requests, err := w.Since(mark)
	fillAdded(row, &before, &after, row.Pods-existing*podsOfJob, requests)
	return err
}

func jobName(index int) string { return fmt.Sprintf("job-%05d", index) }

// isLed reports whether a job is coordinator-led.
func isLed(index int) bool { return index%2 == 1 }

// submit submits the job with a number.
func (w *world) submit(ctx context.Context, namespace string, index int) error {
	name := jobName(index)
	if !isLed(index) {
		if err := w.submitter.Create(ctx, harness.WorkerLedJob(namespace, name, podsOfJob)); err != nil {
			return fmt.Errorf("submitting job %s: %w", name, err)
		}
		return nil
	}
	raw, err := jobs.Of(namespace, name, jobBytes)
	if err != nil {
		return err
	}
	job := &unstructured.Unstructured{}
	if err := job.UnmarshalJSON(raw); err != nil {
		return fmt.Errorf("decoding job %s: %w", name, err)
	}
	unstructured.RemoveNestedField(job.Object, "status")
	if err := w.submitter.Create(ctx, job); err != nil {
		return fmt.Errorf("submitting job %s: %w", name, err)
	}
	return nil
}

// waitRunning returns when so many pods of a namespace run.
func (w *world) waitRunning(ctx context.Context, namespace string, pods int) error {
	said := time.Now()
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, harness.Patience, true, func(context.Context) (bool, error) {
		running := w.watched.runningIn(namespace)
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			w.Say("%d of %d pods run", running, pods)
		}
		return running == pods, w.kubelet.Err()
	})
	if err != nil {
		_, failure := w.askers.take()
		return errors.Join(fmt.Errorf("waiting until %d pods run: %w", pods, err), failure)
	}
	return nil
}

// restAndTime measures the programs at rest, then times new jobs. Coordinators poll meanwhile.
func (w *world) restAndTime(ctx context.Context, row *results.Rung) error {
	polls := w.polls()
	polls.Start(ctx)
	defer polls.Stop()
	before, err := w.read(ctx)
	if err != nil {
		return err
	}
	if err := pace.Pause(ctx, w.bench.rest); err != nil {
		return err
	}
	after, err := w.read(ctx)
	if err != nil {
		return err
	}
	requests, err := w.Since(before.mark)
	if err != nil {
		return err
	}
	fillRest(row, &before, &after, requests)
	if err := w.timeNew(ctx, row); err != nil {
		return err
	}
	polls.Stop()
	taken := polls.Take()
	row.Get, row.FailedCalls = timesOf(taken.Times), taken.Failed
	if taken.Failed > 0 {
		row.Failure = taken.Failures[0]
	}
	return nil
}

// polls are the GETs of coordinators in turn, at the same rate at each rung.
func (w *world) polls() *pace.Prober {
	callers := w.askers.served(namespace)
	return &pace.Prober{Name: "GET", Every: pollsEvery, Call: func(ctx context.Context, number int) error {
		if len(callers) == 0 {
			return pace.ErrNotMade
		}
		_, err := coordinator.NewLine(w.server.Address, &callers[number%len(callers)], false).Get(ctx)
		return err
	}}
}

func timesOf(all []time.Duration) results.Times {
	return results.Times{P50: figures.Percentile(all, 50).Seconds(), P99: figures.Percentile(all, 99).Seconds()}
}
