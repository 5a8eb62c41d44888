// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods has the pods of jobs, and what a kubelet writes about them.
package pods

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// Of returns a pod that a job owns.
func Of(job *v2alpha1.DIJob, name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: name, Labels: labels, OwnerReferences: jobs.Owner(job)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: names.Container, Image: "di"}}},
	}
}

// Coordinator returns the pod of a job's coordinator.
func Coordinator(job *v2alpha1.DIJob) *corev1.Pod {
	name := names.CoordinatorPod(job.Name)
	return Of(job, name, names.ReplicaLabels(job.Name, names.ReplicaTypeCoordinator, name))
}

// Run makes a pod run at an address.
func Run(pod *corev1.Pod, address string) {
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
}

// RunReady makes a pod run at an address and be ready.
func RunReady(pod *corev1.Pod, address string) {
	Run(pod, address)
	Ready(pod)
}

// Ready makes a pod ready.
func Ready(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// End ends all containers of a pod, which fails. A pod that fails again is recreated only after a backoff, so that
// happened some time ago.
func End(status *corev1.PodStatus, exitCode int32) {
	status.Phase = corev1.PodFailed
	status.Conditions = nil
	ended := metav1.NewTime(time.Now().Add(-time.Hour))
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
		status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exitCode, FinishedAt: ended, StartedAt: ended,
		}}
	}
}

// Disrupt marks a pod as the target of a disruption.
func Disrupt(status *corev1.PodStatus, reason string) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.DisruptionTarget
	})
	status.Conditions = append(status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason,
	})
}
