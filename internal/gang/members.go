// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Keys by which pods say that they belong to a gang.
const (
	// volcanoAnnotation is what Volcano's controller looks at: without it, it makes
	// a group of its own for the pod; and what its scheduler has always read.
	volcanoAnnotation = "scheduling.k8s.io/group-name"
	// volcanoNewerAnnotation is what newer ones of its schedulers read first.
	volcanoNewerAnnotation = "scheduling.volcano.sh/group-name"
	coschedulingLabel      = "scheduling.x-k8s.io/pod-group"
)

// minMember is what Volcano's and scheduler-plugins' objects have in common.
type minMember struct{}

func (minMember) least(spec map[string]any) int64 {
	least, _, err := unstructured.NestedInt64(spec, "minMember")
	if err != nil {
		return 0
	}
	return least
}

// level writes what is wanted over what is stored. A field that nobody asks for
// any more stays as it is: the API server, or somebody, may have filled it.
func (minMember) level(stored, wanted map[string]any) bool {
	for key, value := range wanted {
		if !equality.Semantic.DeepEqual(stored[key], value) {
			stored[key] = value
		}
	}
	return true
}

func (minMember) spec(gang *Gang) map[string]any {
	spec := map[string]any{"minMember": int64(gang.Min)}
	if len(gang.Resources) > 0 {
		resources := map[string]any{}
		for name, quantity := range gang.Resources {
			resources[string(name)] = quantity.String()
		}
		spec["minResources"] = resources
	}
	return spec
}

// volcano is the scheduler of that name. It looks at queue, priority and
// resources before any pod of a gang.
type volcano struct{ minMember }

func (v volcano) spec(gang *Gang) map[string]any {
	spec := v.minMember.spec(gang)
	maps.Copy(spec, named("queue", gang.Queue))
	maps.Copy(spec, named("priorityClassName", gang.PriorityClass))
	return spec
}

func named(field, value string) map[string]any {
	if value == "" {
		return nil
	}
	return map[string]any{field: value}
}

func (volcano) mark(pod *corev1.Pod, group string) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[volcanoAnnotation], pod.Annotations[volcanoNewerAnnotation] = group, group
}

func (volcano) groupOf(pod *corev1.Pod) string { return pod.Annotations[volcanoAnnotation] }

// words are in the condition Unschedulable. It stays when the gang is placed, and
// another one, Scheduled, tells so.
func (volcano) words(group *unstructured.Unstructured) Words {
	if condition := conditionOf(group, "Unschedulable"); condition.status == string(corev1.ConditionTrue) {
		return condition.Words
	}
	return Words{}
}

// coscheduling is the plugin of that name. How long the pods of a gang wait for
// each other stays the plugin's own setting.
type coscheduling struct{ minMember }

func (coscheduling) mark(pod *corev1.Pod, group string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[coschedulingLabel] = group
}

func (coscheduling) groupOf(pod *corev1.Pod) string { return pod.Labels[coschedulingLabel] }

// words: the plugin says in the pods why it waits, and in the object nothing.
func (coscheduling) words(*unstructured.Unstructured) Words { return Words{} }
