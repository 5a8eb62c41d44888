// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/names"
)

// selection says whose logs are wanted.
type selection struct {
	tasks []string
	pods  []string
	// container is the container that is wanted, the main one where it is empty.
	container     string
	allContainers bool
}

// checkTasks returns an error that says which tasks a job has where one is named
// that it has not.
func (s *selection) checkTasks(job *v2alpha1.DIJob) error {
	known := replicas.Tasks(job)
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		known = append(known, string(names.ReplicaTypeAggregator), string(names.ReplicaTypeDDPLearner))
	}
	for _, task := range s.tasks {
		if !slices.Contains(known, task) {
			return fmt.Errorf("--task %s: job %s/%s has no such task, but %s", task, job.Namespace, job.Name, strings.Join(known, ", "))
		}
	}
	return nil
}

// checkPods returns an error that says which pods a job has where one is named
// that it has not. A pod may come later where the logs are followed.
func (s *selection) checkPods(job *v2alpha1.DIJob, own []*corev1.Pod) error {
	var there []string
	for _, pod := range own {
		there = append(there, pod.Name)
	}
	for _, name := range s.pods {
		if slices.ContainsFunc(there, func(pod string) bool { return isNamed(job, pod, name) }) {
			continue
		}
		if len(there) == 0 {
			return fmt.Errorf("--pod %s: job %s/%s has no pods yet", name, job.Namespace, job.Name)
		}
		return fmt.Errorf("--pod %s: job %s/%s has no such pod, but %s", name, job.Namespace, job.Name, cluster.Some(there))
	}
	return nil
}

// isNamed reports whether a pod is meant by its name or by the short one.
func isNamed(job *v2alpha1.DIJob, pod, name string) bool {
	return pod == name || replicas.Name(job.Name, pod) == name
}

// takes reports whether the logs of a job's pod are wanted.
func (s *selection) takes(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	ofTask := len(s.tasks) == 0 || slices.Contains(s.tasks, replicas.Task(pod)) || slices.Contains(s.tasks, replicas.Role(pod))
	named := len(s.pods) == 0 || slices.ContainsFunc(s.pods, func(name string) bool { return isNamed(job, pod.Name, name) })
	return ofTask && named
}

// containers returns the names of a pod's containers whose logs are wanted; none
// where it has no container of that name.
func (s *selection) containers(pod *corev1.Pod) []string {
	all := containersOf(pod)
	switch {
	case s.allContainers:
		return all
	case s.container == "":
		return []string{names.MainContainerOf(pod).Name}
	case slices.Contains(all, s.container):
		return []string{s.container}
	}
	return nil
}

// checkContainer returns an error that says which containers there are where
// none of the pods has the one that is named.
func (s *selection) checkContainer(pods []*corev1.Pod) error {
	if s.container == "" || len(pods) == 0 {
		return nil
	}
	var there []string
	for _, pod := range pods {
		for _, name := range containersOf(pod) {
			if name == s.container {
				return nil
			}
			if !slices.Contains(there, name) {
				there = append(there, name)
			}
		}
	}
	return fmt.Errorf("--container %s: no pod has such a container, but %s", s.container, strings.Join(there, ", "))
}

// containersOf returns the names of all containers of a pod, those that run first
// first.
func containersOf(pod *corev1.Pod) []string {
	var all []string
	for i := range pod.Spec.InitContainers {
		all = append(all, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		all = append(all, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, pod.Spec.EphemeralContainers[i].Name)
	}
	return all
}
