// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Demand is what the pods of some replicas request from a scheduler.
type Demand struct {
	// Resources are the sum of their requests.
	Resources corev1.ResourceList
	// PriorityClass is the PriorityClass of the first pod, "" for none.
	PriorityClass string
}

// Demand adds up the requests of the pods of replicas.
func (b *Builder) Demand(replicas []Replica) (Demand, error) {
	demand := Demand{Resources: corev1.ResourceList{}}
	byTask := map[int]int64{}
	for i := range replicas {
		byTask[replicas[i].Task]++
	}
	for task, count := range byTask {
		template, err := b.task(task)
		if err != nil {
			return Demand{}, err
		}
		if task == replicas[0].Task {
			demand.PriorityClass = b.priorityClass(&template.Spec)
		}
		for name, quantity := range requestsOf(&template.Spec) {
			quantity.Mul(count)
			sum := demand.Resources[name]
			sum.Add(quantity)
			demand.Resources[name] = sum
		}
	}
	return demand, nil
}

// requestsOf returns the requests of a pod. A limit is also the request of a container that sets
// none, as the API server defaults it.
func requestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	pod := &corev1.Pod{Spec: *spec.DeepCopy()}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			resources := &containers[i].Resources
			for name, limit := range resources.Limits {
				if _, says := resources.Requests[name]; says {
					continue
				}
				if resources.Requests == nil {
					resources.Requests = corev1.ResourceList{}
				}
				resources.Requests[name] = limit
			}
		}
	}
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

// priorityClass returns the PriorityClass of a pod of the job, "" for none.
func (b *Builder) priorityClass(spec *corev1.PodSpec) string {
	return cmp.Or(b.job.Spec.PriorityClassName, spec.PriorityClassName, b.settings.PriorityClasses[cmp.Or(b.job.Spec.Priority, v2alpha1.PriorityNormal)])
}
