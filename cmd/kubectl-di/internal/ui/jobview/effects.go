// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/names"
)

// SuspendEffects says what suspending a job does.
func SuspendEffects(job *v2alpha1.DIJob) []string {
	if ptr.Deref(job.Spec.Suspend, false) {
		return []string{"The job is suspended already: nothing changes."}
	}
	effects := []string{fmt.Sprintf("The job's pods are deleted: %d.", podsOf(job))}
	if total := gpus(job); total > 0 {
		effects = append(effects, fmt.Sprintf("%d GPUs become free.", total))
	}
	return append(effects, "State that the job keeps only in its pods is lost: it needs a checkpoint.", "Resuming creates the pods again.")
}

// ResumeEffects says what resuming a job does.
func ResumeEffects(job *v2alpha1.DIJob) []string {
	if !ptr.Deref(job.Spec.Suspend, false) {
		return []string{"The job is not suspended: nothing changes."}
	}
	effects := []string{"The job's pods are created again, and its programs start from their beginning or their checkpoint."}
	if name := queue(job); name != "" {
		effects = append(effects, fmt.Sprintf("The job may wait in queue %s first.", name))
	}
	if job.Spec.Preemptible {
		effects = append(effects, "The allocator places the job first.")
	}
	return effects
}

// DeleteEffects says what deleting a job does.
func DeleteEffects(job *v2alpha1.DIJob) []string {
	return []string{
		fmt.Sprintf("The job and its pods are deleted: %d.", podsOf(job)),
		"Its logs, its status and its plans are gone for good.",
	}
}

// ResizeEffects says what another number of replicas of a task does.
func ResizeEffects(job *v2alpha1.DIJob, task *api.Resizable, count int32) []string {
	if count == task.Replicas {
		return []string{fmt.Sprintf("Task %s has %d replicas already: nothing changes.", task.Task, count)}
	}
	effects := []string{fmt.Sprintf("Task %s changes from %d to %d replicas.", task.Task, task.Replicas, count)}
	each := int64(0)
	for i := range job.Spec.Tasks {
		if names.TaskName(&job.Spec.Tasks[i]) == task.Task {
			each = gpusOf(job.Spec.Tasks[i].Template.Raw)
		}
	}
	if by := int64(count - task.Replicas); by > 0 {
		effects = append(effects, fmt.Sprintf("Replicas that are added: %d, with GPUs: %d.", by, by*each))
	} else {
		effects = append(effects, fmt.Sprintf("Replicas that are removed: %d. GPUs that become free: %d.", -by, -by*each))
	}
	switch {
	case job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed:
		effects = append(effects, "A ScalePlan asks the operator for it. The coordinator sees the change of its replicas.")
	case sizing.MayRestart(job):
		effects = append(effects, "The whole job restarts for it.")
	default:
		effects = append(effects, "The other replicas continue.")
	}
	return effects
}

// RestartEffects says what restarting a replica does.
func RestartEffects(job *v2alpha1.DIJob, pod *corev1.Pod) []string {
	name := replicas.Name(job.Name, pod.Name)
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return []string{
			fmt.Sprintf("A ScalePlan asks the operator to replace %s by another pod.", name),
			"A learner of several GPUs is replaced as a whole.", "The coordinator loses its connection to the replica.",
		}
	}
	return []string{
		fmt.Sprintf("Pod %s is deleted, and the operator creates it again.", pod.Name), "State that it keeps only in its pod is lost.",
		"It counts as a disruption, and not as a failure.",
	}
}

// podsOf counts the pods of a job.
func podsOf(job *v2alpha1.DIJob) int32 {
	total := int32(0)
	for _, pods := range job.Status.TaskStatus {
		for _, count := range pods {
			total += count
		}
	}
	return total
}
