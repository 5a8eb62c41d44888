// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

const (
	jobsEvery = time.Second
	sayEvery  = 5 * time.Second
)

// outcome is the result of one round.
type outcome struct {
	placings []placing
	// succeeded and restarted count jobs.
	succeeded, restarted int
	// most is the maximum number of pods on nodes at a time.
	most int
	took time.Duration
	// asked are the requests by user, from the first submission to the end.
	asked map[string]controlplane.Requests
}

// play submits jobs, with gangs or without, waits until all have finished, and deletes them.
func (w *world) play(ctx context.Context, namespace string, jobs, pods int, gang bool) (*outcome, error) {
	mark, err := w.WaitQuiet(ctx, restTime)
	if err != nil {
		return nil, err
	}
	w.Say("%s: submitting %d jobs of %d pods", namespace, jobs, pods)
	began := time.Now()
	if err := w.submitAll(ctx, namespace, jobs, pods, gang); err != nil {
		return nil, err
	}
	done := &outcome{}
	if err := w.waitEnded(ctx, namespace, jobs, done); err != nil {
		return nil, err
	}
	done.took = time.Since(began)
	if _, err := w.WaitQuiet(ctx, restTime); err != nil {
		return nil, err
	}
	done.placings, done.most = w.ledgers[namespace].placings(time.Now()), w.ledgers[namespace].mostAtOnce()
	if done.asked, err = w.Since(mark); err != nil {
		return nil, err
	}
	return done, w.Clear(ctx, namespace, w.kubelet)
}

func (w *world) submitAll(ctx context.Context, namespace string, jobs, pods int, gang bool) error {
	return w.SubmitAll(ctx, jobs, func(ctx context.Context, index int) error {
		job := harness.WorkerLedJob(namespace, fmt.Sprintf("job-%04d", index), pods)
		if gang {
			job.Spec.Scheduling = &v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}}
		}
		w.ledgers[namespace].submit(job.Name, time.Now())
		if err := w.submitter.Create(ctx, job); err != nil {
			return fmt.Errorf("submitting job %s: %w", job.Name, err)
		}
		return nil
	})
}

// waitEnded returns when all jobs have finished, or after harness.Patience, and reports their
// results.
func (w *world) waitEnded(ctx context.Context, namespace string, jobs int, done *outcome) error {
	var said time.Time
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); {
		var list v2alpha1.DIJobList
		if err := w.API.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("reading jobs: %w", err)
		}
		phases := map[v2alpha1.Phase]int{}
		done.restarted = 0
		for i := range list.Items {
			status := &list.Items[i].Status
			phases[status.Phase]++
			if status.Restarts > 0 || status.Reschedules > 0 {
				done.restarted++
			}
		}
		done.succeeded = phases[v2alpha1.JobSucceeded]
		if done.succeeded+phases[v2alpha1.JobFailed] == jobs {
			return w.kubelet.Err()
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			w.Say("%s: %v", namespace, phases)
		}
		if err := pace.Pause(ctx, jobsEvery); err != nil {
			return err
		}
	}
	w.Say("%s: only %d of %d jobs have ended after %s", namespace, done.succeeded, jobs, harness.Patience)
	return w.kubelet.Err()
}
