// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// cleanUp deletes what a finished job needs no longer: its services, and its
// pods by its policy. It acts once the end is recorded.
func cleanUp(p *pass) outcome {
	if !IsFinished(&p.Job.Status) {
		return goOn
	}
	for _, service := range p.Services {
		p.deleteService(service)
	}
	policy := cmp.Or(p.Job.Spec.CleanPodPolicy, v2alpha1.CleanPodPolicyRunning)
	for _, pod := range p.Pods {
		if policy == v2alpha1.CleanPodPolicyAll || policy == v2alpha1.CleanPodPolicyRunning && isActive(pod) {
			p.deletePod(pod)
		}
	}
	return settled
}

// isActive tells whether a pod of a finished job still runs or is pending, and
// nothing of it has ended: one that failed for some time is kept for its logs,
// and so is a coordinator whose sidecar goes on.
func isActive(pod *corev1.Pod) bool {
	return !isEnded(pod) && !isLooping(pod)
}
