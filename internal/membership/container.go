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

// restarts returns how often the container that DI-engine runs in was
// restarted: that of the known name, else the one named after the role, else
// the only one.
func restarts(pod *corev1.Pod) int32 {
	statuses := pod.Status.ContainerStatuses
	for _, name := range []string{names.Container, string(roleOf(pod))} {
		for i := range statuses {
			if statuses[i].Name == name {
				return statuses[i].RestartCount
			}
		}
	}
	if len(statuses) == 1 {
		return statuses[0].RestartCount
	}
	return 0
}
