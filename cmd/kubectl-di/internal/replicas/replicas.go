// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas says of a job's pods what people call them: their task, and a
// name without what all pods of the job have in common. It must not read a
// cluster.
package replicas

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Name returns the name of a job's pod without the job's.
func Name(job, pod string) string {
	return cmp.Or(strings.TrimPrefix(pod, job+"-"), pod)
}

// Role returns what a pod is in its job: the name of its task, but aggregator or
// ddp-learner for the parts of a learner of several GPUs.
func Role(pod *corev1.Pod) string {
	return cmp.Or(pod.Labels[names.LabelTaskName], pod.Labels[names.LabelReplicaType])
}

// Task returns the name of the task of a job that a pod is a replica of, or a
// part of one.
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

// Of returns those pods that are the job's own, and not its predecessor's of the
// same name, in the order of the tasks and their names.
func Of(job *v2alpha1.DIJob, pods []*corev1.Pod) []*corev1.Pod {
	own := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !metav1.IsControlledBy(pod, job) })
	tasks := Tasks(job)
	slices.SortFunc(own, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(place(tasks, a), place(tasks, b)), cmp.Compare(Role(a), Role(b)), byNumber(a.Name, b.Name))
	})
	return own
}

// place returns the place of a pod's task; what is no task of the spec is last.
func place(tasks []string, pod *corev1.Pod) int {
	if at := slices.Index(tasks, Task(pod)); at >= 0 {
		return at
	}
	return len(tasks)
}

// byNumber compares names so that pod-2 is before pod-10.
func byNumber(a, b string) int {
	digitsA, digitsB := number(a), number(b)
	if strings.TrimSuffix(a, digitsA) == strings.TrimSuffix(b, digitsB) {
		return cmp.Or(cmp.Compare(len(digitsA), len(digitsB)), cmp.Compare(digitsA, digitsB))
	}
	return cmp.Compare(a, b)
}

// number returns the digits that a name ends with.
func number(name string) string {
	return name[len(strings.TrimRight(name, "0123456789")):]
}
