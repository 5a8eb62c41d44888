// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

const (
	// submitters is how many jobs are submitted at a time.
	submitters = 16
	// jobsEvery is how often is asked how jobs do.
	jobsEvery = 500 * time.Millisecond
)

// jobsOf returns so many jobs of so many pods each.
func jobsOf(namespace, name string, jobs, pods int) []*v2alpha1.DIJob {
	made := make([]*v2alpha1.DIJob, jobs)
	for i := range made {
		made[i] = harness.WorkerLedJob(namespace, fmt.Sprintf("%s-%04d", name, i), pods)
	}
	return made
}

func (w *world) submit(ctx context.Context, job *v2alpha1.DIJob) error {
	if err := w.submitter.Create(ctx, job); err != nil {
		return fmt.Errorf("submitting job %s: %w", job.Name, err)
	}
	return nil
}

// submitAll submits jobs, so many at a time, and gives each on once it exists.
func (w *world) submitAll(ctx context.Context, jobs []*v2alpha1.DIJob, then func(index int)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for i, job := range jobs {
		group.Go(func() error {
			if err := w.submit(ctx, job); err != nil {
				return err
			}
			if then != nil {
				then(i)
			}
			return nil
		})
	}
	return group.Wait()
}

// waitPods returns when so many pods exist in a namespace, and when the last came.
func (w *world) waitPods(ctx context.Context, namespace string, pods int) (time.Time, error) {
	var came time.Time
	err := w.kubelet.wait(ctx, w.World, "pods created in "+namespace, func(of tallies) (int, int) {
		total := of.in(namespace).total()
		came = total.created
		return total.pods, pods
	})
	return came, err
}

// waitReady returns when so many pods are ready in a namespace, and since when.
func (w *world) waitReady(ctx context.Context, namespace string, pods int) (time.Time, error) {
	var came time.Time
	err := w.kubelet.wait(ctx, w.World, "pods ready in "+namespace, func(of tallies) (int, int) {
		total := of.in(namespace).total()
		came = total.running
		return total.ready, pods
	})
	return came, err
}

// in returns the jobs of a namespace.
func (t tallies) in(namespace string) tallies {
	found := tallies{}
	for key, one := range t {
		if key.namespace == namespace {
			found[key] = one
		}
	}
	return found
}

// waitRunning returns when so many jobs of a namespace say that they run, which
// is asked only once so many pods are ready, as asking costs.
func (w *world) waitRunning(ctx context.Context, namespace string, jobs, pods int) error {
	if _, err := w.waitReady(ctx, namespace, pods); err != nil {
		return err
	}
	return w.waitJobs(ctx, namespace, jobs, "jobs running", func(job *v2alpha1.DIJob) bool {
		return job.Status.Phase == v2alpha1.JobRunning && job.Status.ReadyReplicas == job.Status.Replicas
	})
}

// waitJobs returns when so many jobs of a namespace are as wanted.
func (w *world) waitJobs(ctx context.Context, namespace string, wanted int, what string, is func(*v2alpha1.DIJob) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, harness.Patience, fmt.Errorf("%s take too long", what))
	defer cancel()
	said := time.Now()
	for {
		var list v2alpha1.DIJobList
		if err := w.API.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("reading jobs: %w", err)
		}
		have := 0
		for i := range list.Items {
			if is(&list.Items[i]) {
				have++
			}
		}
		if have >= wanted {
			return nil
		}
		if time.Since(said) > progressEvery {
			said = time.Now()
			w.Say("%s: %d of %d", what, have, wanted)
		}
		if err := pace.Pause(ctx, jobsEvery); err != nil {
			return err
		}
	}
}
