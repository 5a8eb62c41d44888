// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas describes a job's pods for users: their short names, tasks, order, states and
// events. It must not read a cluster.
package replicas

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Phases returns the phases of a job.
func Phases() []string {
	return []string{
		string(v2alpha1.JobPending), string(v2alpha1.JobStarting), string(v2alpha1.JobRestarting), string(v2alpha1.JobRescheduling),
		string(v2alpha1.JobRunning), string(v2alpha1.JobSucceeded), string(v2alpha1.JobFailed), string(v2alpha1.JobUnknown),
	}
}

// Name returns the name of a job's pod without the job's prefix.
func Name(job, pod string) string {
	return cmp.Or(strings.TrimPrefix(pod, job+"-"), pod)
}

// Role returns the task name of a pod. For the parts of a unit it returns aggregator or
// ddp-learner.
func Role(pod *corev1.Pod) string {
	return cmp.Or(pod.Labels[names.LabelTaskName], pod.Labels[names.LabelReplicaType])
}

// Task returns the name of the task whose replica the pod is, or is a part of.
func Task(pod *corev1.Pod) string {
	role := Role(pod)
	switch names.ReplicaType(role) {
	case names.ReplicaTypeAggregator, names.ReplicaTypeDDPLearner:
		if pod.Labels[names.LabelReplicaType] != "" {
			return string(v2alpha1.TaskTypeLearner)
		}
	case names.ReplicaTypeCoordinator, names.ReplicaTypeCollector, names.ReplicaTypeLearner:
	}
	return role
}

// Tasks returns the names of a job's tasks in the order of the spec.
func Tasks(job *v2alpha1.DIJob) []string {
	tasks := make([]string, 0, len(job.Spec.Tasks))
	for i := range job.Spec.Tasks {
		tasks = append(tasks, names.TaskName(&job.Spec.Tasks[i]))
	}
	return tasks
}

// Of returns the job's own pods, without those of an earlier job of the same name, in the order of
// the tasks and their names.
func Of(job *v2alpha1.DIJob, pods []*corev1.Pod) []*corev1.Pod {
	return Sorted(job, slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !metav1.IsControlledBy(pod, job) }))
}

// Sorted sorts pods in the order of the tasks and their names.
func Sorted(job *v2alpha1.DIJob, pods []*corev1.Pod) []*corev1.Pod {
	tasks := Tasks(job)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(taskIndex(tasks, a), taskIndex(tasks, b)), cmp.Compare(Role(a), Role(b)), byNumber(a.Name, b.Name))
	})
	return pods
}

// taskIndex returns the index of a pod's task in the spec; other roles come last.
func taskIndex(tasks []string, pod *corev1.Pod) int {
	if at := slices.Index(tasks, Task(pod)); at >= 0 {
		return at
	}
	return len(tasks)
}

// byNumber compares names and sorts pod-2 before pod-10.
func byNumber(a, b string) int {
	digitsA, digitsB := number(a), number(b)
	if strings.TrimSuffix(a, digitsA) == strings.TrimSuffix(b, digitsB) {
		return cmp.Or(cmp.Compare(len(digitsA), len(digitsB)), cmp.Compare(digitsA, digitsB))
	}
	return cmp.Compare(a, b)
}

// number returns the trailing digits of a name.
func number(name string) string {
	return name[len(strings.TrimRight(name, "0123456789")):]
}

// Status returns the state of a pod in one word, like kubectl get pods.
func Status(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, containers := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range containers {
			if waiting := containers[i].State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing" {
				return waiting.Reason
			}
			if ended := containers[i].State.Terminated; ended != nil && ended.ExitCode != 0 {
				return cmp.Or(ended.Reason, "Error")
			}
		}
	}
	return cmp.Or(pod.Status.Reason, string(pod.Status.Phase), string(corev1.PodPending))
}

// Restarts returns how often the kubelet restarted containers of a pod.
func Restarts(pod *corev1.Pod) int32 {
	restarts := int32(0)
	for i := range pod.Status.ContainerStatuses {
		restarts += pod.Status.ContainerStatuses[i].RestartCount
	}
	return restarts
}

// Counts returns the number of pods in each phase.
func Counts(pods v2alpha1.TaskStatus) string {
	var counts []string
	for _, phase := range slices.Sorted(maps.Keys(pods)) {
		if pods[phase] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", pods[phase], phase))
		}
	}
	return strings.Join(counts, ", ")
}

// LastSeen returns when an Event was last observed, and how often.
func LastSeen(event *corev1.Event) (time.Time, int32) {
	at, count := event.LastTimestamp.Time, max(1, event.Count)
	if event.EventTime.After(at) {
		at = event.EventTime.Time
	}
	if series := event.Series; series != nil {
		count = series.Count
		if series.LastObservedTime.After(at) {
			at = series.LastObservedTime.Time
		}
	}
	if at.IsZero() {
		at = event.CreationTimestamp.Time
	}
	return at, count
}

// Age returns a readable duration since a time.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(then)))
}

// IsFinished reports whether a job has succeeded or failed. Such a job desires no replicas.
func IsFinished(job *v2alpha1.DIJob) bool {
	return job.Status.Phase == v2alpha1.JobSucceeded || job.Status.Phase == v2alpha1.JobFailed
}
