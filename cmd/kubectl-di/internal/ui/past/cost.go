// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/history/record"
)

// Cost returns what all recorded replicas of a job requested for as long as they ran.
func Cost(of *record.Job, now time.Time) api.Cost {
	requests := make(map[string]record.Request, len(of.Requests))
	for _, request := range of.Requests {
		requests[request.Task] = request
	}
	cost := api.Cost{Recorded: true}
	for i := range of.Replicas {
		replica := &of.Replicas[i]
		ended := replica.Ended
		if ended.IsZero() {
			ended = of.Ended
		}
		if ended.IsZero() {
			ended = now
		}
		if replica.Started.IsZero() || !ended.After(replica.Started) {
			continue
		}
		hours, request := ended.Sub(replica.Started).Hours(), requests[replica.Task]
		cost.Pods++
		cost.PodHours += hours
		cost.CPUHours += hours * float64(request.CPU) / 1000
		cost.MemoryHours += hours * float64(request.Memory) / (1 << 30)
		cost.GPUHours += hours * float64(request.GPUs)
	}
	return cost
}
