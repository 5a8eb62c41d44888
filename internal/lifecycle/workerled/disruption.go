// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"slices"

	"opendilab.org/di-orchestrator/internal/lifecycle/state"

	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// backOffDisrupted has pods wait that are disrupted again within the backoff.
func (p *Plan) backOffDisrupted() state.Result {
	if disrupted := p.disruptedReplicas(); len(disrupted) > 0 {
		p.BackingOff = !p.MayRecreate(disrupted)
	}
	return state.Continue
}

// disruptedReplicas returns the disrupted pods of desired replicas.
func (p *Plan) disruptedReplicas() []state.DisruptedPod {
	var found []state.DisruptedPod
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		if pod := p.PodNamed[replica.Pod]; pod != nil && podstate.FailedOrLost(pod) && !podstate.Terminating(pod) && !state.HasFailed(p.Job, pod) {
			found = append(found, state.DisruptedPod{Pod: pod, Task: p.Job.Spec.Tasks[replica.Task].Type})
		}
	}
	return found
}

// isAllReady reports whether every desired replica is ready or has succeeded. During
// a restart none is.
func (p *Plan) isAllReady() bool {
	isSeated := len(p.assignment.Replicas) == int(p.counts.Total)
	return isSeated && !slices.ContainsFunc(p.assignment.Replicas, func(replica workload.Replica) bool {
		pod := p.PodNamed[replica.Pod]
		return !p.completed().Has(replica.Rank) && (pod == nil || !podstate.Ready(pod))
	})
}
