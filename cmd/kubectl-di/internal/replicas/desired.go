// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/membership"
)

// Unknown is the number of desired pods of a task that the Membership of a job would tell.
const Unknown = -1

// Sizes are the numbers of pods that a job is meant to have. All views of a job show these.
type Sizes struct {
	// Tasks has a number for each task, in the order of the spec. That of learners counts the DDP learners of an
	// aggregator, and not the aggregator.
	Tasks []int
	// Aggregators is the number of aggregators of learners with several GPUs.
	Aggregators int
}

// Desired returns the numbers of pods that a job is meant to have. Those of a preemptible job are of its placement.
// Those of a coordinator-led job are of its Membership, which is nil if there is none or if it could not be read. A finished
// job desires none.
func Desired(job *v2alpha1.DIJob, list *v2alpha1.Membership) Sizes {
	sizes := Sizes{Tasks: make([]int, len(job.Spec.Tasks))}
	if IsFinished(job) {
		return sizes
	}
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		for i, count := range sizing.Wanted(job).ByTask {
			sizes.Tasks[i] = int(count)
		}
		return sizes
	}
	known := list != nil && list.Spec.JobUID == job.UID
	of := map[v2alpha1.TaskType]int{}
	for i := range job.Spec.Tasks {
		of[job.Spec.Tasks[i].Type] = i
		switch {
		case job.Spec.Tasks[i].Type == v2alpha1.TaskTypeCoordinator:
			sizes.Tasks[i] = 1
		case !known:
			sizes.Tasks[i] = Unknown
		}
	}
	if !known {
		sizes.Aggregators = Unknown
		return sizes
	}
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		task, exists := of[member.Task]
		switch {
		case !exists:
		case membership.IsUnit(member):
			sizes.Aggregators++
			sizes.Tasks[task] += len(member.DDPGPUs)
		default:
			sizes.Tasks[task]++
		}
	}
	return sizes
}
