// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/job/podstate"
)

// Instance identifies one run of a pod's main container: the UID of the pod and
// the number of restarts.
func Instance(pod *corev1.Pod) string {
	restarts := int32(0)
	if main := podstate.MainContainer(pod); main != nil {
		restarts = main.RestartCount
	}
	return fmt.Sprintf("%s/%d", pod.UID, restarts)
}
