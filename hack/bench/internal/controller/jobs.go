// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
)

// jobsEvery is the interval between two lists of the jobs.
const jobsEvery = 500 * time.Millisecond

func (w *world) submit(ctx context.Context, job *v2alpha1.DIJob) error {
	if err := w.submitter.Create(ctx, job); err != nil {
		return fmt.Errorf("submitting job %s: %w", job.Name, err)
	}
	return nil
}

// submitAll submits the jobs of a shape.
func (w *world) submitAll(ctx context.Context, s shape) error {
	return w.SubmitAll(ctx, s.jobs, func(ctx context.Context, index int) error {
		return w.submit(ctx, harness.WorkerLedJob(oursNamespace, fmt.Sprintf("job-%04d", index), s.pods))
	})
}

// waitPods returns when the given number of pods exist in a namespace, with the creation time of
// the last.
func (w *world) waitPods(ctx context.Context, namespace string, pods int) (time.Time, error) {
	err := w.waitFor(ctx, "pods created in "+namespace, pollEvery, pods, func() (int, error) {
		return w.kubelet.in(namespace).pods, w.kubelet.Err()
	})
	return w.kubelet.in(namespace).created, err
}

// waitReady returns when the given number of pods are ready in a namespace.
func (w *world) waitReady(ctx context.Context, namespace string, pods int) error {
	return w.waitFor(ctx, "pods ready in "+namespace, pollEvery, pods, func() (int, error) {
		return w.kubelet.in(namespace).ready, w.kubelet.Err()
	})
}

// waitRunning returns when the given number of jobs of a namespace are running. It lists the jobs
// only once enough pods are ready because the lists are costly.
func (w *world) waitRunning(ctx context.Context, namespace string, jobs, pods int) error {
	if err := w.waitReady(ctx, namespace, pods); err != nil {
		return err
	}
	return w.waitFor(ctx, "jobs running", jobsEvery, jobs, func() (have int, _ error) {
		var list v2alpha1.DIJobList
		if err := w.API.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return 0, fmt.Errorf("reading jobs: %w", err)
		}
		for i := range list.Items {
			if status := &list.Items[i].Status; status.Phase == v2alpha1.JobRunning && status.ReadyReplicas == status.Replicas {
				have++
			}
		}
		return have, nil
	})
}
