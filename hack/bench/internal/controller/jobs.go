// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
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

// workerTask is the task of worker-led jobs.
const workerTask = "worker"

func allocatedName(index int) string { return fmt.Sprintf("job-%04d", index) }

// gpuTemplate is the pod template of a replica with a GPU.
const gpuTemplate = `{"spec":{"containers":[{"name":"di-container","image":"diorchestrator/ding:v1.1.0","command":["python","train.py"],
"resources":{"requests":{"cpu":"1","memory":"2Gi","nvidia.com/gpu":"1"},"limits":{"cpu":"2","memory":"4Gi","nvidia.com/gpu":"1"}}}]}}`

// allocatedJob returns a preemptible job with one to so many replicas.
func allocatedJob(name string, replicas int) *v2alpha1.DIJob {
	job := harness.WorkerLedJob(oursNamespace, name, replicas)
	job.Spec.Preemptible = true
	job.Spec.Elastic = &v2alpha1.Elastic{MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To(int32(replicas))}
	job.Spec.Tasks[0].Template.Raw = []byte(gpuTemplate)
	return job
}

// addNode adds a ready node with 8 GPUs.
func (w *world) addNode(ctx context.Context, index int) error {
	return w.AddNode(ctx, fmt.Sprintf("node-%03d", index), corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("768Gi"),
		corev1.ResourcePods: resource.MustParse("110"), "nvidia.com/gpu": resource.MustParse("8"),
	})
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
