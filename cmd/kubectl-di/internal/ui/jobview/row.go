// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
)

// Row returns the row of a job, without its curve.
func Row(job *v2alpha1.DIJob) api.JobRow {
	status := &job.Status
	row := api.JobRow{
		Namespace: job.Namespace, Name: job.Name, UID: string(job.UID), Version: writtenIn(job),
		Lifecycle: string(cmp.Or(job.Spec.Lifecycle, v2alpha1.LifecycleWorkerLed)), Phase: string(replicas.Phase(job)), Reason: replicas.Reason(job),
		Roles: roles(job, nil), GPUs: replicas.GPUs(job, nil),
		Restarts: status.Restarts, Reschedules: status.Reschedules, CreatedAt: job.CreationTimestamp.UTC(),
		CompletedAt: timeOf(status.CompletionTimestamp), Suspended: ptr.Deref(job.Spec.Suspend, false),
		Terminating: job.DeletionTimestamp != nil, Preemptible: job.Spec.Preemptible, Group: job.Spec.Group, Queue: queue(job),
		Priority: cmp.Or(job.Spec.PriorityClassName, string(job.Spec.Priority)),
	}
	row.Ready, row.Wanted = replicas.Ready(job)
	if row.Reason != "" {
		row.Message = messageOf(job, row.Reason)
	}
	return row
}

// messageOf returns the message of the condition, or the failure, with a reason.
func messageOf(job *v2alpha1.DIJob, reason string) string {
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		if condition.Reason == reason || condition.Type == reason && condition.Status == corev1.ConditionTrue {
			return short(condition.Message)
		}
	}
	if last := job.Status.LastFailure; last != nil && last.Reason == reason {
		return short(last.Message)
	}
	return ""
}

// mostMessage bounds the messages of a row, in bytes.
const mostMessage = 500

func short(text string) string {
	if len(text) <= mostMessage {
		return text
	}
	return strings.ToValidUTF8(text[:mostMessage], "") + "…"
}

// writtenIn returns the version that the spec was last written in, by the managed fields.
func writtenIn(job *v2alpha1.DIJob) string {
	version := v2alpha1.Version
	var latest time.Time
	for i := range job.ManagedFields {
		entry := &job.ManagedFields[i]
		if entry.Subresource != "" || entry.FieldsV1 == nil || !strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`) {
			continue
		}
		if entry.Time == nil || !entry.Time.Time.Before(latest) {
			if entry.Time != nil {
				latest = entry.Time.Time
			}
			_, version, _ = strings.Cut(entry.APIVersion, "/")
		}
	}
	return version
}

func queue(job *v2alpha1.DIJob) string {
	if job.Spec.Scheduling != nil {
		return job.Spec.Scheduling.Queue
	}
	return ""
}

// roles counts the pods of each task. Without the Membership of a coordinator-led job, the desired ones of its
// coordinator are 0.
func roles(job *v2alpha1.DIJob, list *v2alpha1.Membership) []api.RoleCount {
	desired := replicas.Desired(job, list)
	counts := make([]api.RoleCount, 0, len(job.Spec.Tasks)+1)
	for i := range job.Spec.Tasks {
		name := names.TaskName(&job.Spec.Tasks[i])
		counts = append(counts, count(name, max(desired.Tasks[i], 0), job.Status.TaskStatus[name]))
	}
	if pods := job.Status.TaskStatus[v2alpha1.AggregatorTaskStatus]; desired.Aggregators > 0 || len(pods) > 0 {
		counts = append(counts, count(v2alpha1.AggregatorTaskStatus, max(desired.Aggregators, 0), pods))
	}
	return counts
}

func count(role string, wanted int, pods v2alpha1.TaskStatus) api.RoleCount {
	return api.RoleCount{
		Role: role, Wanted: wanted, Running: int(pods[corev1.PodRunning]), Pending: int(pods[corev1.PodPending]),
		Succeeded: int(pods[corev1.PodSucceeded]), Failed: int(pods[corev1.PodFailed]),
	}
}

// wanted returns the desired replicas of a task; 0 if the coordinator decides.
func wanted(job *v2alpha1.DIJob, task int) int {
	return max(replicas.Desired(job, nil).Tasks[task], 0)
}

func timeOf(at *metav1.Time) *time.Time {
	if at == nil || at.IsZero() {
		return nil
	}
	return ptr.To(at.UTC())
}
