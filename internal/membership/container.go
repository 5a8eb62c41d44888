// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/podstate"
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
	if main := podstate.MainContainer(pod); main != nil {
		return main.RestartCount
	}
	return 0
}
