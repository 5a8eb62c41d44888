// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package failures

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/policy"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Disruptions are the pods that ended without a failure of their own.
type Disruptions struct {
	// Victims are the pods that failed because another replica cannot start.
	Victims map[*corev1.Pod]bool
	// IsBackingOff is set while disrupted pods wait to be recreated.
	IsBackingOff bool
}

// BackOffDisrupted returns the disruptions. It delays pods that are disrupted again within the backoff.
func (f *Stage) BackOffDisrupted() Disruptions {
	found := Disruptions{Victims: f.victims()}
	switch disrupted := f.disruptedReplicas(found.Victims); {
	case len(disrupted) == 0:
	case f.stall != nil && f.stall.IsOver:
		// The replicas that gave up meanwhile would count as failed from now on.
		disruptions.New(f.out, f.in).ReportDisruption(disrupted)
	default:
		found.IsBackingOff = !disruptions.New(f.out, f.in).MayRecreate(disrupted)
	}
	return found
}

// victims returns the pods of replicas that failed because another one cannot start.
func (f *Stage) victims() map[*corev1.Pod]bool {
	victims := map[*corev1.Pod]bool{}
	for i := range f.ranked.Assignment.Replicas {
		replica := &f.ranked.Assignment.Replicas[i]
		if pod := f.in.PodNamed[replica.Pod]; pod != nil && f.isVictim(replica, pod) {
			victims[pod] = true
		}
	}
	return victims
}

// isVictim reports whether a replica failed because another one cannot start, so that its failure is a
// disruption. A rule of the failure policy that fails the job, or ignores the failure, comes first.
func (f *Stage) isVictim(replica *workload.Replica, pod *corev1.Pod) bool {
	if f.stall == nil || !problems.HasGivenUp(f.in.Job, pod) || f.facts.IsCounted(pod) {
		return false
	}
	action, _ := policy.ActionFor(f.in.Job, replica, pod)
	return action != v2alpha1.FailurePolicyFailJob && action != v2alpha1.FailurePolicyIgnore
}

// disruptedReplicas returns the disrupted pods of desired replicas.
func (f *Stage) disruptedReplicas(victims map[*corev1.Pod]bool) []disruptions.DisruptedPod {
	var found []disruptions.DisruptedPod
	for i := range f.ranked.Assignment.Replicas {
		replica := &f.ranked.Assignment.Replicas[i]
		if pod := f.in.PodNamed[replica.Pod]; pod != nil && podstate.FailedOrLost(pod) && !podstate.Terminating(pod) && (!state.HasFailed(f.in.Job, pod) || victims[pod]) {
			found = append(found, disruptions.DisruptedPod{Pod: pod, Task: f.in.Job.Spec.Tasks[replica.Task].Type})
		}
	}
	return found
}
