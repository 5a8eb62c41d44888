// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
)

// goneContainer stands for a coordinator that asked for replicas and is gone:
// whichever asks next is another one.
const goneContainer = "gone"

// Container identifies the coordinator's container for its life: the pod and
// how often its container was restarted.
func Container(coordinator *corev1.Pod) string {
	return fmt.Sprintf("%s/%d", coordinator.UID, restarts(coordinator))
}

// restarts returns how often a pod's main container was restarted.
func restarts(pod *corev1.Pod) int32 {
	if main := MainContainer(pod); main != nil {
		return main.RestartCount
	}
	return 0
}

// MainContainer returns the status of the container that DI-engine runs in:
// that which the pod was made with as such, else that of the known name, else the
// one named after the role, else the only one, and of a worker-led job's pod the
// first; nil while there is none.
func MainContainer(pod *corev1.Pod) *corev1.ContainerStatus {
	if own := names.OwnContainers(pod); len(own) > 0 {
		return statusOf(pod, own[0])
	}
	statuses, role := pod.Status.ContainerStatuses, RoleOf(pod)
	main := statusOf(pod, names.Container)
	switch {
	case main != nil:
		return main
	case role != "":
		main = statusOf(pod, string(role))
	case len(pod.Spec.Containers) > 0:
		main = statusOf(pod, pod.Spec.Containers[0].Name)
	}
	if main == nil && len(statuses) == 1 {
		return &statuses[0]
	}
	return main
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}
