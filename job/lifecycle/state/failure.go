// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/podstate"
)

// ExitTerminated is the exit code of a process that SIGTERM terminated.
const ExitTerminated = 143

// Failure is the end of a pod that was recorded.
type Failure struct {
	// TaskType is the type of the pod's task.
	TaskType v2alpha1.TaskType
	// Reason is one of FailureReasons.
	Reason string
}

// RecordFailure adds the end of a pod to those that are counted once the status is written.
func (p *Plan) RecordFailure(task v2alpha1.TaskType, pod *corev1.Pod) {
	p.Decision.Failures = append(p.Decision.Failures, Failure{TaskType: task, Reason: FailureReason(p.in.Job, pod)})
}

// FailureReasons returns the reasons of pods that ended before their work was done.
func FailureReasons() []string {
	return []string{
		v2alpha1.ReasonError, v2alpha1.ReasonProbeFailed, v2alpha1.ReasonOOMKilled, v2alpha1.ReasonContainerStart, v2alpha1.ReasonDeadlineExceeded, v2alpha1.ReasonNodeLost,
		v2alpha1.ReasonRejected, v2alpha1.ReasonEvicted, v2alpha1.ReasonPreempted, v2alpha1.ReasonGracefulExit,
	}
}

// FailureReason classifies how a pod ended, as one of FailureReasons.
func FailureReason(job *v2alpha1.DIJob, pod *corev1.Pod) string {
	if podstate.Disruption(pod) == "" && hasLeft(job, pod) {
		return v2alpha1.ReasonGracefulExit
	}
	return podstate.FailureReason(pod)
}

// HasFailed reports whether a pod failed by its own process. A pod counts as failed if its node
// lost contact with it. A graceful exit of a preemptible job's replica is no failure.
func HasFailed(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	return podstate.FailedOrLost(pod) && !podstate.Disrupted(pod) && !hasLeft(job, pod)
}

// hasLeft reports whether a replica of a preemptible job exited gracefully: it received SIGTERM,
// saved its state and exited.
func hasLeft(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	main := podstate.MainTermination(pod)
	return job.Spec.Preemptible && main != nil && main.ExitCode == ExitTerminated && !podstate.IsKilledByProbe(pod)
}
