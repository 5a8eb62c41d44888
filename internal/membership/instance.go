// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/podstate"
)

// Container identifies one run of a pod's main container: the UID of the pod and
// the number of restarts.
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
