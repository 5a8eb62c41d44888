// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gang has adapters for the schedulers that place all pods of a job at once or none. It
// builds their PodGroups, makes pods members of one, and reads why a gang is not placed. It is
// pure: it has no client, no clock and no log. The objects are unstructured, so that no scheduler's
// module is needed.
package gang

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the kind of the object that describes a gang. All schedulers use the same kind.
const Kind = "PodGroup"

// Gang describes the pods that a scheduler must place at once.
type Gang struct {
	Namespace, Name string
	// Labels and Owner are those of the PodGroup.
	Labels map[string]string
	Owner  metav1.OwnerReference
	// Min is how many pods must be placed before any starts.
	Min int32
	// Resources are the sum of the requests of Min pods.
	Resources corev1.ResourceList
	// Queue is the queue that the gang waits in, "" for the scheduler's default.
	Queue string
	// PriorityClass is the PriorityClass of the pods, "" for none.
	PriorityClass string
}

// SchedulerStatus is the reason and message of a scheduler that has not placed a gang; the zero
// value if it gives no reason.
type SchedulerStatus struct {
	Reason, Message string
}

// Provider is a gang scheduler with one version of its API.
type Provider struct {
	// Name is the setting that selects it.
	Name Setting
	// GVK is the type of its PodGroups.
	GVK schema.GroupVersionKind
	// SchedulerName is set on pods that name no scheduler; "" is the cluster's default.
	SchedulerName string

	dialect dialect
}

// dialect is the part of an API that differs between the schedulers.
type dialect interface {
	// spec returns the spec of a gang's PodGroup.
	spec(gang *Gang) map[string]any
	// sync makes a stored spec equal to the desired one, and reports whether the API allows that
	// change.
	sync(stored, wanted map[string]any) (possible bool)
	// least returns from a stored spec how many pods must be placed at once.
	least(spec map[string]any) int64
	mark(pod *corev1.Pod, group string)
	groupOf(pod *corev1.Pod) string
	status(group *unstructured.Unstructured) SchedulerStatus
}

// Group builds the PodGroup of a gang.
func (p *Provider) Group(gang *Gang) *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{"spec": p.dialect.spec(gang)}}
	group.SetGroupVersionKind(p.GVK)
	group.SetNamespace(gang.Namespace)
	group.SetName(gang.Name)
	group.SetLabels(gang.Labels)
	group.SetOwnerReferences([]metav1.OwnerReference{gang.Owner})
	return group
}

// Sync returns the stored PodGroup with the desired fields. Fields that other programs wrote stay.
// It reports whether the API allows that change.
func (p *Provider) Sync(stored *unstructured.Unstructured, gang *Gang) (synced *unstructured.Unstructured, possible bool) {
	synced = stored.DeepCopy()
	spec, found, err := unstructured.NestedMap(synced.Object, "spec")
	if err != nil || !found {
		spec = map[string]any{}
	}
	if !p.dialect.sync(spec, p.dialect.spec(gang)) {
		return stored, false
	}
	synced.Object["spec"] = spec
	return synced, true
}

// Least returns how many pods a PodGroup requires to be placed at once.
func (p *Provider) Least(group *unstructured.Unstructured) int32 {
	spec, _, err := unstructured.NestedMap(group.Object, "spec")
	if err != nil {
		return 0
	}
	return int32(p.dialect.least(spec))
}

// Mark makes a pod a member of a gang. The provider schedules the pod unless the pod names a
// scheduler.
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

// Read returns the scheduler's status from a PodGroup. The pods show whether the gang is placed,
// because PodGroups outlive an attempt.
func (p *Provider) Read(group *unstructured.Unstructured) SchedulerStatus {
	return p.dialect.status(group)
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
