// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
)

// SuspendEffects says what suspending a job does. The Membership is that of a coordinator-led job, nil if it
// is unknown.
func SuspendEffects(job *v2alpha1.DIJob, list *v2alpha1.Membership) []string {
	if ptr.Deref(job.Spec.Suspend, false) {
		return []string{"The job is suspended already: nothing changes."}
	}
	effects := []string{fmt.Sprintf("The job's pods are deleted: %d.", podsOf(job))}
	if total := jobview.GPUs(job, list); total > 0 {
		effects = append(effects, fmt.Sprintf("GPUs that become free: %d.", total))
	}
	effects = append(effects, "State that the job keeps only in its pods is lost: it needs a checkpoint.")
	if isLed(job) {
		return append(effects, "Resuming creates the coordinator again, without its replicas. It requests them.")
	}
	return append(effects, "Resuming creates the pods again.")
}

// ResumeEffects says what resuming a job does.
func ResumeEffects(job *v2alpha1.DIJob) []string {
	if !ptr.Deref(job.Spec.Suspend, false) {
		return []string{"The job is not suspended: nothing changes."}
	}
	effects := []string{"The job's pods are created again, and its programs start from their beginning or their checkpoint."}
	if isLed(job) {
		effects[0] = "The coordinator is created again, without the replicas that it had. It requests them."
	}
	if name := jobview.Summarize(job, jobview.Members{}).Queue; name != "" {
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

// ResizeEffects says what another number of replicas of a task does. The Membership is that of a
// coordinator-led job, nil if it is unknown.
func ResizeEffects(job *v2alpha1.DIJob, list *v2alpha1.Membership, task *api.Resizable, count int32) []string {
	if count == task.Replicas {
		return []string{fmt.Sprintf("The replicas of task %s are %d already: nothing changes.", task.Task, count)}
	}
	effects := []string{fmt.Sprintf("The replicas of task %s change from %d to %d.", task.Task, task.Replicas, count)}
	by := int64(count - task.Replicas)
	if total := gpusOfChange(job, list, task, count); by > 0 {
		effects = append(effects, fmt.Sprintf("Replicas that are added: %d, with GPUs: %d.", by, total))
	} else {
		effects = append(effects, fmt.Sprintf("Replicas that are removed: %d. GPUs that become free: %d.", -by, total))
	}
	if isLed(job) && by < 0 {
		effects = append(effects, "The newest replicas are removed, and run on for the drain time.")
	}
	switch {
	case isLed(job):
		effects = append(effects, "A ScalePlan asks the operator for it. The coordinator sees the change of its replicas.")
	case sizing.MayRestart(job):
		effects = append(effects, "The whole job restarts for it.")
	default:
		effects = append(effects, "The other replicas continue.")
	}
	return effects
}

// gpusOfChange returns the GPUs of the replicas that a resize adds or removes.
func gpusOfChange(job *v2alpha1.DIJob, list *v2alpha1.Membership, task *api.Resizable, count int32) int64 {
	at := slices.IndexFunc(job.Spec.Tasks, func(one v2alpha1.Task) bool { return names.TaskName(&one) == task.Task })
	if at < 0 {
		return 0
	}
	each, all := jobview.GPUsOfTemplate(job.Spec.Tasks[at].Template.Raw), jobview.GPUsOfMembers(job, list, at)
	total := int64(0)
	for i := int(min(count, task.Replicas)); i < int(max(count, task.Replicas)); i++ {
		if len(all) > 0 {
			each = all[min(i, len(all)-1)] // A new member has those of the newest one.
		}
		total += each
	}
	return total
}

// RestartEffects says what restarting a replica does.
func RestartEffects(job *v2alpha1.DIJob, pod *corev1.Pod) []string {
	name := replicas.Name(job.Name, pod.Name)
	if isLed(job) {
		effects := []string{fmt.Sprintf("A ScalePlan asks the operator to replace %s by another pod.", name)}
		if names.RoleOf(pod) == names.ReplicaTypeAggregator {
			effects = append(effects, "A learner of several GPUs is replaced as a whole.")
		}
		return append(effects, "The coordinator loses its connection to the replica.")
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
