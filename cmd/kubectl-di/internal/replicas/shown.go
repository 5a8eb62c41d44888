// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"cmp"
	"fmt"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Phase, Reason and Ready are what every view shows of a job first. Their source is the job alone, as that of kubectl get:
// a view that also reads pods would contradict the others until the operator has observed these.

// Phase returns the phase. A job that the operator has not observed is Pending.
func Phase(job *v2alpha1.DIJob) v2alpha1.Phase {
	return cmp.Or(job.Status.Phase, v2alpha1.JobPending)
}

// Reason returns in one word why the job does not run as desired, or why it failed; "" if neither applies.
func Reason(job *v2alpha1.DIJob) string {
	if job.Status.Summary == nil {
		return ""
	}
	return job.Status.Summary.Reason
}

// IsFinished reports whether the job has succeeded or failed. Such a job desires no replicas.
func IsFinished(job *v2alpha1.DIJob) bool {
	return job.Status.Phase == v2alpha1.JobSucceeded || job.Status.Phase == v2alpha1.JobFailed
}

// Ready returns how many of the desired replicas are ready, and how many are desired. A coordinator-led job is as large as
// the operator has recorded, because the views do not all read its Membership.
func Ready(job *v2alpha1.DIJob) (ready, desired int) {
	if IsFinished(job) {
		return 0, 0
	}
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		// The coordinator is desired before the operator has recorded anything.
		desired = max(int(job.Status.Replicas), 1)
	} else {
		for _, count := range Desired(job, nil).Tasks {
			desired += count
		}
	}
	// A resize keeps excess replicas for a while.
	return min(int(job.Status.ReadyReplicas), desired), desired
}

// ReadyText returns the ready of the desired replicas, such as 3/5; "" for a finished job.
func ReadyText(job *v2alpha1.DIJob) string {
	if IsFinished(job) {
		return ""
	}
	ready, desired := Ready(job)
	return fmt.Sprintf("%d/%d", ready, desired)
}
