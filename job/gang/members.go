// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Pods name their gang by these keys.
const (
	// volcanoAnnotation is the annotation that all versions of Volcano's scheduler read. Volcano's
	// controller creates a separate PodGroup for a pod without it.
	volcanoAnnotation = "scheduling.k8s.io/group-name"
	// volcanoNewerAnnotation is the annotation that newer versions of Volcano's scheduler read
	// first.
	volcanoNewerAnnotation = "scheduling.volcano.sh/group-name"
	coschedulingLabel      = "scheduling.x-k8s.io/pod-group"
)

// minMember has the fields that the PodGroups of Volcano and scheduler-plugins share.
type minMember struct{}

func (minMember) least(spec map[string]any) int64 {
	least, _, err := unstructured.NestedInt64(spec, "minMember")
	if err != nil {
		return 0
	}
	return least
}

// sync writes the desired fields over the stored ones. A field that is no longer desired
// stays: the API server, or another program, may have set it.
func (minMember) sync(stored, wanted map[string]any) bool {
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

// volcano is the scheduler Volcano. It checks queue, priority and resources before it places any
// pod of a gang.
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

// status reads the condition Unschedulable. That condition stays when the gang is placed, which the
// condition Scheduled reports.
func (volcano) status(group *unstructured.Unstructured) SchedulerStatus {
	if condition := conditionOf(group, "Unschedulable"); condition.status == string(corev1.ConditionTrue) {
		return condition.SchedulerStatus
	}
	return SchedulerStatus{}
}

// coscheduling is the plugin of that name. The plugin's own setting determines how long the pods of
// a gang wait for each other.
type coscheduling struct{ minMember }

func (coscheduling) mark(pod *corev1.Pod, group string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[coschedulingLabel] = group
}

func (coscheduling) groupOf(pod *corev1.Pod) string { return pod.Labels[coschedulingLabel] }

// status returns nothing: the plugin reports only in the pods why it waits.
func (coscheduling) status(*unstructured.Unstructured) SchedulerStatus { return SchedulerStatus{} }
