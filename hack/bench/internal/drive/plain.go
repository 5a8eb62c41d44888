// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
)

// first is the name of the job whose pods are copied.
const first = "warm-up"

// Plain creates the pods of jobs without jobs: the reference.
type Plain struct{ pods []corev1.Pod }

// Learn runs a job, deletes it, and returns a Plain that creates pods like those of it.
func Learn(ctx context.Context, w *cluster.World, pods int) (Plain, error) {
	var p Plain
	if err := Submit(ctx, w.Client, WorkerLed(first, pods)); err != nil {
		return p, err
	}
	if err := w.WaitRunning(ctx, cluster.Namespace, pods); err != nil {
		return p, err
	}
	var list corev1.PodList
	if err := w.API.List(ctx, &list, client.InNamespace(cluster.Namespace)); err != nil {
		return p, fmt.Errorf("reading the pods of the first job: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		kept := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
		kept.Spec.NodeName = ""
		p.pods = append(p.pods, kept)
	}
	return p, w.Clear(ctx, cluster.Namespace)
}

// Create creates the pod with a number.
func (p Plain) Create(ctx context.Context, by client.Client, index int) error {
	pod := p.pods[index%len(p.pods)].DeepCopy()
	pod.Name = strings.Replace(pod.Name, first, fmt.Sprintf("plain-%05d", index/len(p.pods)), 1)
	if err := by.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	return nil
}
