// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
)

// Row returns the row of a job, without its curve.
func Row(job *v2alpha1.DIJob) api.JobRow {
	summary := jobview.Summarize(job, jobview.Members{})
	return rowOf(job, &summary)
}

func rowOf(job *v2alpha1.DIJob, s *jobview.Summary) api.JobRow {
	return api.JobRow{
		Namespace: s.Namespace, Name: s.Name, UID: string(job.UID), Version: writtenIn(job), Lifecycle: string(s.Lifecycle),
		Phase: string(s.Phase), Reason: s.Reason, Message: short(s.Message), Ready: s.Ready, Wanted: s.Desired, Roles: roles(s.Tasks), GPUs: s.GPUs, GPUType: gpuType(job),
		Restarts: s.Restarts, Reschedules: s.Reschedules, CreatedAt: s.CreatedAt, CompletedAt: s.CompletedAt, Suspended: s.IsSuspended,
		Terminating: s.IsTerminating, Preemptible: s.Preemptible, Group: s.Group, Queue: s.Queue, Creator: s.Creator, Priority: s.Priority,
	}
}

// gpuType returns the products of the GPUs that the templates select, or else their resources, but for the usual one.
func gpuType(job *v2alpha1.DIJob) string {
	var all []string
	for i := range job.Spec.Tasks {
		request := jobview.RequestOf(job.Spec.Tasks[i].Template.Raw)
		if request.GPUs == 0 {
			continue
		}
		name := request.Selector[LabelProduct]
		for _, resource := range request.Resources {
			if resource != string(names.DefaultGPU) {
				name = cmp.Or(name, resource)
			}
		}
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

const (
	// mostMessage bounds the messages of a row, in bytes.
	mostMessage = 500
	// mostFailure bounds the text of a failure, whose end matters most.
	mostFailure = 4000
)

func short(text string) string { return cut(text, mostMessage) }

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
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

func roles(tasks []jobview.Task) []api.RoleCount {
	counts := make([]api.RoleCount, 0, len(tasks))
	for i := range tasks {
		pods := tasks[i].Phases
		counts = append(counts, api.RoleCount{
			Role: tasks[i].Name, Wanted: tasks[i].Desired, Running: int(pods[corev1.PodRunning]), Pending: int(pods[corev1.PodPending]),
			Succeeded: int(pods[corev1.PodSucceeded]), Failed: int(pods[corev1.PodFailed]),
		})
	}
	return counts
}

func timeOf(at *metav1.Time) *time.Time {
	if at == nil || at.IsZero() {
		return nil
	}
	return ptr.To(at.UTC())
}
