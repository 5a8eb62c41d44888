// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/membership"
)

// unknown is the number of desired pods of a task that only the Membership of a job, which was not read, would tell.
const unknown = -1

// Members is what was read of the Membership of a coordinator-led job. The zero value is that it was not read.
type Members struct {
	// List is nil if the job has no Membership.
	List   *v2alpha1.Membership
	IsRead bool
}

// ReadMembers returns a Membership that was read; nil if there is none.
func ReadMembers(list *v2alpha1.Membership) Members { return Members{List: list, IsRead: true} }

// sizes are the numbers of pods that a job is meant to have.
type sizes struct {
	// tasks has a number for each task, in the order of the spec. That of learners counts the DDP learners of an
	// aggregator, and not the aggregator.
	tasks []int
	// aggregators is the number of aggregators of learners with several GPUs.
	aggregators int
}

// desired returns the numbers of pods that a job is meant to have. Those of a preemptible job are of its placement.
// Those of a coordinator-led job are of its Membership. A finished job desires none.
func desired(job *v2alpha1.DIJob, members Members) sizes {
	found := sizes{tasks: make([]int, len(job.Spec.Tasks))}
	if replicas.IsFinished(job) {
		return found
	}
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		for i, count := range sizing.Wanted(job).ByTask {
			found.tasks[i] = int(count)
		}
		return found
	}
	of := map[v2alpha1.TaskType]int{}
	for i := range job.Spec.Tasks {
		of[job.Spec.Tasks[i].Type] = i
		switch {
		case job.Spec.Tasks[i].Type == v2alpha1.TaskTypeCoordinator:
			found.tasks[i] = 1
		case !members.IsRead:
			found.tasks[i] = unknown
		}
	}
	if !members.IsRead {
		found.aggregators = unknown
		return found
	}
	// The Membership of an earlier job of the same name says nothing.
	if members.List == nil || members.List.Spec.JobUID != job.UID {
		return found
	}
	for i := range members.List.Spec.Members {
		member := &members.List.Spec.Members[i]
		task, exists := of[member.Task]
		switch {
		case !exists:
		case membership.IsUnit(member):
			found.aggregators++
			found.tasks[task] += len(member.DDPGPUs)
		default:
			found.tasks[task]++
		}
	}
	return found
}
