// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gang speaks to the schedulers that place all pods of a job at once or
// none: which object each wants to be told of a gang by, how a pod says that it
// belongs to one, and where the scheduler says why it waits. It is pure: it must
// not read or write a cluster, log, or tell the time. The objects are
// unstructured, so that no scheduler's module is needed.
package gang

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is what all schedulers call the object that tells of a gang.
const Kind = "PodGroup"

// Gang is what a scheduler is told of the pods that it is to place at once.
type Gang struct {
	Namespace, Name string
	// Labels and Owner are the object's.
	Labels map[string]string
	Owner  metav1.OwnerReference
	// Min is how many pods are to be placed before any starts.
	Min int32
	// Resources is what that many pods ask for together.
	Resources corev1.ResourceList
	// Queue is the queue that the gang waits in, "" for the scheduler's default.
	Queue string
	// PriorityClass is the one of the pods, "" for none.
	PriorityClass string
}

// Words are what a scheduler says of a gang that it has not placed. They are
// empty where it says nothing.
type Words struct {
	Reason, Message string
}

// Provider is a scheduler that gangs can be left to, by one version of its API.
type Provider struct {
	// Name is the setting that asks for it.
	Name Setting
	// GVK is what its objects are.
	GVK schema.GroupVersionKind
	// SchedulerName is given to pods that name no scheduler; "" for the cluster's default.
	SchedulerName string

	dialect dialect
}

// dialect is what differs between the schedulers.
type dialect interface {
	// spec is that of the object.
	spec(gang *Gang) map[string]any
	// level writes into a stored spec what is to be another in it, and reports
	// whether the API lets it be changed.
	level(stored, wanted map[string]any) (possible bool)
	// least reads from a stored spec how many pods are to be placed at once.
	least(spec map[string]any) int64
	mark(pod *corev1.Pod, group string)
	groupOf(pod *corev1.Pod) string
	words(group *unstructured.Unstructured) Words
}

// Group builds the object that tells of a gang.
func (p *Provider) Group(gang *Gang) *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{"spec": p.dialect.spec(gang)}}
	group.SetGroupVersionKind(p.GVK)
	group.SetNamespace(gang.Namespace)
	group.SetName(gang.Name)
	group.SetLabels(gang.Labels)
	group.SetOwnerReferences([]metav1.OwnerReference{gang.Owner})
	return group
}

// Level returns the stored object as it is to be, which is the stored one where
// it is so already. What others wrote into it stays. It reports whether the API
// lets it be changed.
func (p *Provider) Level(stored *unstructured.Unstructured, gang *Gang) (leveled *unstructured.Unstructured, possible bool) {
	leveled = stored.DeepCopy()
	spec, found, err := unstructured.NestedMap(leveled.Object, "spec")
	if err != nil || !found {
		spec = map[string]any{}
	}
	if !p.dialect.level(spec, p.dialect.spec(gang)) {
		return stored, false
	}
	leveled.Object["spec"] = spec
	return leveled, true
}

// Least returns how many pods an object says are to be placed at once.
func (p *Provider) Least(group *unstructured.Unstructured) int32 {
	spec, _, err := unstructured.NestedMap(group.Object, "spec")
	if err != nil {
		return 0
	}
	return int32(p.dialect.least(spec))
}

// Mark has a pod belong to a gang, and leaves it to the scheduler, unless it
// names one.
func (p *Provider) Mark(pod *corev1.Pod, group string) {
	p.dialect.mark(pod, group)
	if pod.Spec.SchedulerName == "" {
		pod.Spec.SchedulerName = p.SchedulerName
	}
}

// IsMember reports whether a pod belongs to a gang.
func (p *Provider) IsMember(pod *corev1.Pod, group string) bool {
	return p.dialect.groupOf(pod) == group
}

// Read returns what the scheduler says in an object of why it has not placed the
// gang. Whether it is placed is told by its pods, as objects outlive an attempt.
func (p *Provider) Read(group *unstructured.Unstructured) Words {
	return p.dialect.words(group)
}

// IsMember reports whether a pod belongs to a gang of any scheduler.
func IsMember(pod *corev1.Pod) bool {
	for _, each := range dialects() {
		if each.groupOf(pod) != "" {
			return true
		}
	}
	return false
}

func dialects() []dialect {
	return []dialect{volcano{}, coscheduling{}, kubernetes{}}
}
