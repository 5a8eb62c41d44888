// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// began is the creation time of every job.
const began = "2023-01-09T08:00:00Z"

// Job is a job as a release left it.
type Job struct {
	Namespace, Name string
	// State is the state that the job is an example of. Phase is the phase in its status; "" if no
	// operator has reconciled it.
	State, Phase string
	// Pods and Services are the UIDs of the job's pods and services, by name.
	Pods, Services map[string]types.UID
}

// state is a state of jobs. A job is named by its state and number.
type state struct {
	name, phase string
	spec        map[string]any
	// status contains the status fields besides the phase; nil for a job that was never reconciled.
	status map[string]any
	// pods returns the pods in order of creation, each after its owners.
	pods     func(*owner) []*corev1.Pod
	services func(*owner, []*corev1.Pod) []*corev1.Service
}

// owner is a stored job for which pods are created.
type owner struct {
	namespace, name string
	reference       metav1.OwnerReference
}

// Jobs creates a namespace and the given number of jobs in it, cycling through the states, with the
// pods and services that exist in these states.
func (r Release) Jobs(ctx context.Context, api client.Client, namespace string, n int) ([]Job, error) {
	space := &unstructured.Unstructured{}
	space.SetAPIVersion("v1")
	space.SetKind("Namespace")
	space.SetName(namespace)
	if err := create(ctx, api, space); err != nil {
		return nil, err
	}
	jobs := make([]Job, 0, n)
	for i := range n {
		at := r.states[i%len(r.states)]
		job, err := r.leave(ctx, api, namespace, fmt.Sprintf("%s-%d", at.name, i), &at)
		if err != nil {
			return nil, fmt.Errorf("job %s-%d of %s: %w", at.name, i, r.Name, err)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// leave stores a job in a state and creates its objects.
func (r Release) leave(ctx context.Context, api client.Client, namespace, name string, at *state) (Job, error) {
	job := Job{Namespace: namespace, Name: name, State: at.name, Phase: at.phase, Pods: map[string]types.UID{}, Services: map[string]types.UID{}}
	stored := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "diengine.opendilab.org/" + r.Version, "kind": "DIJob",
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"team": "rl"}},
		"spec":     at.spec,
	}}
	stored = stored.DeepCopy()
	if err := api.Create(ctx, stored); err != nil {
		return job, fmt.Errorf("creating it: %w", err)
	}
	if at.status != nil {
		stored.Object["status"] = (&unstructured.Unstructured{Object: at.status}).DeepCopy().Object
		if err := api.Status().Update(ctx, stored); err != nil {
			return job, fmt.Errorf("updating its status: %w", err)
		}
	}
	return job, at.children(ctx, api, &job, r.ownerOf(stored))
}

// ownerOf returns the owner reference to a job.
func (r Release) ownerOf(stored *unstructured.Unstructured) *owner {
	reference := metav1.OwnerReference{
		APIVersion: "diengine.opendilab.org/" + r.Version, Kind: "DIJob", Name: stored.GetName(), UID: stored.GetUID(), Controller: ptr.To(true),
	}
	if r.Version != "v1alpha1" {
		reference.BlockOwnerDeletion = ptr.To(true)
	}
	return &owner{namespace: stored.GetNamespace(), name: stored.GetName(), reference: reference}
}

// children creates the pods and services of a job. The pods of an aggregator refer to it by UID, so
// each pod is created before the next is described.
func (s *state) children(ctx context.Context, api client.Client, job *Job, of *owner) error {
	if s.pods == nil {
		return nil
	}
	pods := s.pods(of)
	uids := map[string]types.UID{}
	for _, pod := range pods {
		for i := range pod.OwnerReferences {
			if pod.OwnerReferences[i].Kind == "Pod" {
				pod.OwnerReferences[i].UID = uids[pod.OwnerReferences[i].Name]
			}
		}
		if err := createPod(ctx, api, pod); err != nil {
			return err
		}
		uids[pod.Name], job.Pods[pod.Name] = pod.UID, pod.UID
	}
	if s.services == nil {
		return nil
	}
	for _, service := range s.services(of, pods) {
		if err := api.Create(ctx, service); err != nil {
			return fmt.Errorf("creating service %s: %w", service.Name, err)
		}
		job.Services[service.Name] = service.UID
	}
	return nil
}

func createPod(ctx context.Context, api client.Client, pod *corev1.Pod) error {
	status := pod.Status
	if err := api.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	pod.Status = status
	if err := api.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("updating the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// condition returns a condition in the form that all releases wrote.
func condition(kind string, status corev1.ConditionStatus, reason, message string) map[string]any {
	return map[string]any{
		"type": kind, "status": string(status), "reason": reason, "message": message,
		"lastUpdateTime": began, "lastTransitionTime": began,
	}
}

// template is a pod template with one container.
func template(image string, gpus int64) map[string]any {
	container := map[string]any{
		"name": "di-container", "image": image, "command": []any{"/bin/bash", "-c", "ding"},
		"ports": []any{map[string]any{"name": "di-port", "containerPort": int64(22270)}},
	}
	if gpus > 0 {
		container["resources"] = map[string]any{"limits": map[string]any{"nvidia.com/gpu": gpus}}
	}
	return map[string]any{"spec": map[string]any{"containers": []any{container}}}
}

func runs(pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "di-container", Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Date(2023, 1, 9, 8, 0, 0, 0, time.UTC))}},
		}},
	}
}

func waits(pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
}

func ended(exitCode int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		phase, reason := corev1.PodSucceeded, "Completed"
		if exitCode != 0 {
			phase, reason = corev1.PodFailed, "Error"
		}
		pod.Status = corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "di-container", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, Reason: reason}},
		}}}
	}
}

// headless returns a service in the form that all releases created for pods.
func headless(of *owner, name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.namespace, Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{of.reference}},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: labels, Ports: []corev1.ServicePort{{Name: "di-port", Port: 22270}},
		},
	}
}
