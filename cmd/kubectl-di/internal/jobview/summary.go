// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/queueing"
)

// Summary is what every view shows of a job first. Its source is the job, as that of kubectl get: a view that counted the pods
// would contradict the others until the operator has observed these.
type Summary struct {
	Namespace, Name string
	Lifecycle       v2alpha1.Lifecycle
	// Phase is Pending if the operator has not observed the job.
	Phase v2alpha1.Phase
	// Reason is why the job does not run as desired, or why it failed, in one word; "" if neither applies. Message is the
	// sentence of it, if there is one.
	Reason, Message string
	// IsFinished is set if the job has succeeded or failed. Such a job desires no replicas.
	IsFinished, IsSuspended, IsTerminating bool
	// Ready is how many of the Desired replicas are ready. A coordinator-led job is as large as the operator has recorded.
	Ready, Desired int
	Tasks          []Task
	// GPUs are those that the desired replicas request.
	GPUs                   int64
	Restarts, Reschedules  int32
	CreatedAt              time.Time
	CompletedAt            *time.Time
	Preemptible            bool
	Group, Queue, Priority string
	// Creator is the user who created the job; "" for a job of an earlier release.
	Creator string
}

// Task counts the pods of a task. The last one of a job with learners of several GPUs is that of the aggregators.
type Task struct {
	Name string
	Type v2alpha1.TaskType
	// Desired is nil if only the Membership of the job, which was not read, tells it.
	Desired *int
	// Phases are the pods by phase, as the operator has recorded them.
	Phases v2alpha1.TaskStatus
	// Ready are the pods that are ready, of those that were read.
	Ready int
}

// DesiredText returns the desired replicas as text.
func (t *Task) DesiredText() string {
	if t.Desired == nil {
		return "unknown"
	}
	return strconv.Itoa(*t.Desired)
}

// ReadyText returns the ready of the desired replicas, such as 3/5; "" for a finished job.
func (s *Summary) ReadyText() string {
	if s.IsFinished {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Ready, s.Desired)
}

// Summarize returns the summary of a job.
func Summarize(job *v2alpha1.DIJob, members Members) Summary {
	spec, status := &job.Spec, &job.Status
	sizes := desired(job, members)
	s := Summary{
		Namespace: job.Namespace, Name: job.Name, Lifecycle: cmp.Or(spec.Lifecycle, v2alpha1.LifecycleWorkerLed),
		Phase: cmp.Or(status.Phase, v2alpha1.JobPending), Reason: ptr.Deref(status.Summary, v2alpha1.StatusSummary{}).Reason,
		IsFinished: replicas.IsFinished(job), IsSuspended: ptr.Deref(spec.Suspend, false), IsTerminating: job.DeletionTimestamp != nil,
		Tasks: tasksOf(job, sizes), GPUs: GPUs(job, members.List), Restarts: status.Restarts, Reschedules: status.Reschedules,
		CreatedAt: job.CreationTimestamp.UTC(), CompletedAt: timeOf(status.CompletionTimestamp), Preemptible: spec.Preemptible,
		Creator: job.Annotations[names.AnnotationCreator],
		Group:   spec.Group, Queue: queueing.Named(job), Priority: cmp.Or(spec.PriorityClassName, string(spec.Priority)),
	}
	s.Message = messageOf(job, s.Reason)
	if s.IsFinished {
		return s
	}
	for _, count := range sizes.tasks {
		s.Desired += count
	}
	if s.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		// The views do not all read the Membership. The coordinator is desired before the operator has recorded anything.
		s.Desired = max(int(status.Replicas), 1)
	}
	// A resize keeps excess replicas for a while.
	s.Ready = min(int(status.ReadyReplicas), s.Desired)
	return s
}

// tasksOf returns the tasks of a job, and the aggregators if it desires or has some.
func tasksOf(job *v2alpha1.DIJob, sizes sizes) []Task {
	tasks := make([]Task, 0, len(job.Spec.Tasks)+1)
	for i := range job.Spec.Tasks {
		name := names.TaskName(&job.Spec.Tasks[i])
		tasks = append(tasks, Task{Name: name, Type: job.Spec.Tasks[i].Type, Desired: known(sizes.tasks[i]), Phases: job.Status.TaskStatus[name]})
	}
	if phases := job.Status.TaskStatus[v2alpha1.AggregatorTaskStatus]; sizes.aggregators > 0 || len(phases) > 0 {
		tasks = append(tasks, Task{Name: v2alpha1.AggregatorTaskStatus, Desired: known(sizes.aggregators), Phases: phases})
	}
	return tasks
}

func known(count int) *int {
	if count == unknown {
		return nil
	}
	return &count
}

// messageOf returns the message of the condition, or the failure, with a reason.
func messageOf(job *v2alpha1.DIJob, reason string) string {
	if reason == "" {
		return ""
	}
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		if condition.Reason == reason || condition.Type == reason && condition.Status == corev1.ConditionTrue {
			return condition.Message
		}
	}
	if last := job.Status.LastFailure; last != nil && last.Reason == reason {
		return last.Message
	}
	return ""
}

// IsOver reports whether a job must have no pods now.
func IsOver(job *v2alpha1.DIJob) bool {
	return replicas.IsFinished(job) || ptr.Deref(job.Spec.Suspend, false) || job.DeletionTimestamp != nil
}

func timeOf(at *metav1.Time) *time.Time {
	if at == nil || at.IsZero() {
		return nil
	}
	return ptr.To(at.UTC())
}
