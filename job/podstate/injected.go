// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
)

// OnlyInjectedRun reports whether a worker's pod is finished except for containers that admission
// injected, which nothing stops. All containers that the pod was created with have terminated and
// are not restarted.
func OnlyInjectedRun(pod *corev1.Pod) bool {
	own := names.OwnContainers(pod)
	return len(own) > 0 && len(own) < len(pod.Spec.Containers) && pod.Status.Phase == corev1.PodRunning &&
		pod.Spec.RestartPolicy == corev1.RestartPolicyNever &&
		!slices.ContainsFunc(own, func(name string) bool { return terminationOf(pod, name) == nil })
}

// IgnoreInjected returns workers' pods with the phases that they would have
// without injected containers. It copies the pods that it changes.
func IgnoreInjected(pods []*corev1.Pod) []*corev1.Pod {
	var result []*corev1.Pod
	for i, pod := range pods {
		if !OnlyInjectedRun(pod) {
			continue
		}
		if result == nil {
			result = slices.Clone(pods)
		}
		finished := *pod
		finished.Status.Phase = corev1.PodSucceeded
		if slices.ContainsFunc(names.OwnContainers(pod), func(name string) bool { return terminationOf(pod, name).ExitCode != 0 }) {
			finished.Status.Phase = corev1.PodFailed
		}
		result[i] = &finished
	}
	if result == nil {
		return pods
	}
	return result
}

// InjectedRuns reports whether a pod that IgnoreInjected reports as succeeded still
// occupies its node, because an injected container runs.
func InjectedRuns(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded &&
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool { return status.State.Terminated == nil })
}
