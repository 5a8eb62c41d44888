// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// cleanUp deletes what a finished job no longer needs: its services, and its pods by its
// policy. It acts once the end is recorded.
func cleanUp(p *plan) outcome {
	if !IsFinished(&p.Job.Status) {
		return goOn
	}
	p.completeEnd()
	for _, service := range p.Services {
		p.deleteService(service)
	}
	p.deletePodGroups()
	policy := p.cleanPodPolicy()
	for _, pod := range p.Pods {
		if policy == v2alpha1.CleanPodPolicyAll || policy == v2alpha1.CleanPodPolicyRunning && isActive(pod) {
			p.deletePod(pod)
		}
	}
	p.deleteUnusedNodes()
	return settled
}

func (in *input) cleanPodPolicy() v2alpha1.CleanPodPolicy {
	return cmp.Or(in.Job.Spec.CleanPodPolicy, v2alpha1.CleanPodPolicyRunning)
}

// completeEnd completes the record of a job that an earlier release finished: the
// condition if there is only the phase, and when it finished.
func (p *plan) completeEnd() {
	status := p.status()
	if endOfJob(status) == nil {
		kind, reason := conditionOf(status.Phase, IsCoordinatorLed(p.Job)), reasonOf(status.Phase, IsCoordinatorLed(p.Job))
		conditions.Set(status, kind, corev1.ConditionTrue, reason, "an earlier release finished the job", p.Now)
	}
	if status.CompletionTimestamp == nil {
		status.CompletionTimestamp = cmp.Or(endOfJob(status).LastTransitionTime, &p.now).DeepCopy()
	}
}

// isActive reports whether a pod of a finished job is pending or still runs, and none of
// its containers has terminated. A pod that failed for some time is kept for its logs,
// and so is a coordinator whose sidecar runs; a succeeded worker in which an injected
// container runs is not.
func isActive(pod *corev1.Pod) bool {
	return podstate.InjectedRuns(pod) || !podstate.Finished(pod) && !podstate.ContainerExited(pod)
}
