// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
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
	type kind struct {
		task      int
		resources string
	}
	counts, overrides := map[kind]int64{}, map[kind]v2alpha1.ReplicaResources{}
	for i := range replicas {
		override := b.OverrideOf(ReplicaID{Task: names.TaskName(&b.job.Spec.Tasks[replicas[i].Task]), Index: replicas[i].Index})
		each := kind{replicas[i].Task, FormatResources(override)}
		counts[each]++
		overrides[each] = override
	}
	for each, count := range counts {
		template, err := b.task(each.task)
		if err != nil {
			return Demand{}, err
		}
		if each.task == replicas[0].Task {
			demand.PriorityClass = b.priorityClass(&template.Spec)
		}
		for name, quantity := range RequestsOf(withOverride(&template.Spec, overrides[each])) {
			quantity.Mul(count)
			sum := demand.Resources[name]
			sum.Add(quantity)
			demand.Resources[name] = sum
		}
	}
	return demand, nil
}

// withOverride returns a spec whose main container has other requests.
func withOverride(spec *corev1.PodSpec, override v2alpha1.ReplicaResources) *corev1.PodSpec {
	if FormatResources(override) == "" {
		return spec
	}
	spec = spec.DeepCopy()
	main := names.MainContainer(spec)
	main.Resources = WithOverride(main.Resources, override)
	return spec
}

// RequestsOf returns the requests of a pod.
func RequestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.PodRequests(&corev1.Pod{Spec: *DefaultRequests(spec)}, resourcehelper.PodResourcesOptions{})
}

// DefaultRequests returns a copy of a spec with the requests that the API server would set: a limit is
// also the request of a container that sets none. A pod with limits of its own then requests the sum
// of its containers, or its limit if they request nothing.
func DefaultRequests(spec *corev1.PodSpec) *corev1.PodSpec {
	pod := &corev1.Pod{Spec: *spec.DeepCopy()}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			resources := &containers[i].Resources
			resources.Requests = withDefaults(resources.Requests, resources.Limits)
		}
	}
	if resources := pod.Spec.Resources; resources != nil && len(resources.Limits) > 0 {
		ofContainers := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
		maps.DeleteFunc(ofContainers, func(name corev1.ResourceName, _ resource.Quantity) bool {
			return !resourcehelper.IsSupportedPodLevelResource(name)
		})
		resources.Requests = withDefaults(withDefaults(resources.Requests, ofContainers), resources.Limits)
	}
	return &pod.Spec
}

// withDefaults adds the amounts of the resources that requests lack.
func withDefaults(requests, defaults corev1.ResourceList) corev1.ResourceList {
	for name, amount := range defaults {
		if _, isSet := requests[name]; isSet {
			continue
		}
		if requests == nil {
			requests = corev1.ResourceList{}
		}
		requests[name] = amount
	}
	return requests
}

// priorityClass returns the PriorityClass of a pod of the job, "" for none.
func (b *Builder) priorityClass(spec *corev1.PodSpec) string {
	return cmp.Or(b.job.Spec.PriorityClassName, spec.PriorityClassName, b.settings.PriorityClasses[cmp.Or(b.job.Spec.Priority, v2alpha1.PriorityNormal)])
}
