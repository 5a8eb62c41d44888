// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
)

// timeNew submits new jobs one after the other, adds a replica to each, and deletes them all.
func (w *world) timeNew(ctx context.Context, row *results.Rung) error {
	// The answers that came before are not of these jobs.
	if _, err := w.askers.take(); err != nil {
		return err
	}
	var firsts, resizes []time.Duration
	for i := range w.bench.fresh {
		first, err := w.timeFirst(ctx, i)
		if err != nil {
			return err
		}
		resized, err := w.timeResize(ctx, i)
		if err != nil {
			return err
		}
		firsts, resizes = append(firsts, first), append(resizes, resized)
	}
	posts, err := w.askers.take()
	if err != nil {
		return err
	}
	row.FirstPod, row.Resize, row.Post = timesOf(firsts), timesOf(resizes), timesOf(posts)
	return w.clearNew(ctx)
}

func newKey(index int) types.NamespacedName {
	return types.NamespacedName{Namespace: newNamespace, Name: jobName(index)}
}

// timeFirst returns how long the first pod of a new job took, once all its pods run.
func (w *world) timeFirst(ctx context.Context, index int) (time.Duration, error) {
	began := time.Now()
	if err := w.submit(ctx, newNamespace, index); err != nil {
		return 0, err
	}
	created, err := w.waitCreated(ctx, newKey(index), 0)
	if err != nil {
		return 0, err
	}
	return created.Sub(began), w.waitRunning(ctx, newNamespace, (index+1)*podsOfJob+index)
}

// timeResize returns how long a further replica of a new job took.
func (w *world) timeResize(ctx context.Context, index int) (time.Duration, error) {
	began := time.Now()
	if err := w.resize(ctx, index); err != nil {
		return 0, err
	}
	created, err := w.waitCreated(ctx, newKey(index), podsOfJob)
	if err != nil {
		return 0, err
	}
	return created.Sub(began), w.waitRunning(ctx, newNamespace, (index+1)*(podsOfJob+1))
}

// resize adds a replica: the coordinator asks for one, a user patches the other jobs.
func (w *world) resize(ctx context.Context, index int) error {
	key := newKey(index)
	if isLed(index) {
		served := w.askers.served(newNamespace)
		line := coordinator.NewLine(w.server.Address, &served[len(served)-1], false)
		_, err := line.Write(ctx, "POST", "/replicas", `"collectors":{"replicas":1}`)
		return err
	}
	job := &v2alpha1.DIJob{}
	if err := w.submitter.Get(ctx, key, job); err != nil {
		return fmt.Errorf("reading job %s: %w", key.Name, err)
	}
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/tasks/0/replicas","value":%d}]`, podsOfJob+1)
	if err := w.submitter.Patch(ctx, job, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("resizing job %s: %w", key.Name, err)
	}
	return nil
}

// waitCreated returns when the pod of a job with the given number was created.
func (w *world) waitCreated(ctx context.Context, job types.NamespacedName, number int) (created time.Time, err error) {
	err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, harness.Patience, true, func(context.Context) (bool, error) {
		found := false
		created, found = w.watched.createdOf(job, number)
		return found, w.kubelet.Err()
	})
	if err != nil {
		return created, fmt.Errorf("waiting for pod %d of job %s: %w", number, job.Name, err)
	}
	return created, nil
}

// clearNew deletes the new jobs with all their objects.
func (w *world) clearNew(ctx context.Context) error {
	for _, object := range []client.Object{&v2alpha1.DIJob{}, &corev1.Pod{}, &corev1.Service{}, &corev1.ConfigMap{}, &v2alpha1.Membership{}} {
		if err := w.API.DeleteAllOf(ctx, object, client.InNamespace(newNamespace)); err != nil {
			return fmt.Errorf("deleting %T of new jobs: %w", object, err)
		}
	}
	if err := w.waitRunning(ctx, newNamespace, 0); err != nil {
		return err
	}
	w.watched.forget(newNamespace)
	w.askers.forget(newNamespace)
	_, err := w.WaitQuiet(ctx, quietFor)
	return err
}
