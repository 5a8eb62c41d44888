// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/conditions"
)

const (
	kubernetesGroup = "scheduling.k8s.io"
	// defaultScheduler is the name of kube-scheduler, which a job may name.
	defaultScheduler = corev1.DefaultSchedulerName
	// saysNothing is the message of each PodGroup that is not placed.
	saysNothing = "pod group is unschedulable"
	// waitsForOthers is in the message of a pod that fits while its gang does not.
	waitsForOthers = "waiting for minCount pods from a gang"
)

// kubernetes is kube-scheduler itself, since Kubernetes 1.36.
type kubernetes struct {
	// isMutable is set if minCount may be changed, as since v1alpha3. In v1alpha2 the whole spec is
	// immutable.
	isMutable bool
}

func (kubernetes) spec(gang *Gang) map[string]any {
	spec := map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(gang.Min)}}}
	if gang.PriorityClass != "" {
		spec["priorityClassName"] = gang.PriorityClass
	}
	return spec
}

// sync compares only minCount. The priority class is immutable, and the API server drops it if its
// feature gate is off.
func (k kubernetes) sync(stored, wanted map[string]any) bool {
	if equality.Semantic.DeepEqual(k.least(stored), k.least(wanted)) {
		return true
	}
	if !k.isMutable {
		return false
	}
	return unstructured.SetNestedField(stored, k.least(wanted), "schedulingPolicy", "gang", "minCount") == nil
}

func (kubernetes) least(spec map[string]any) int64 {
	least, _, err := unstructured.NestedInt64(spec, "schedulingPolicy", "gang", "minCount")
	if err != nil {
		return 0
	}
	return least
}

func (kubernetes) mark(pod *corev1.Pod, group string) {
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group)}
}

func (kubernetes) groupOf(pod *corev1.Pod) string {
	if pod.Spec.SchedulingGroup == nil {
		return ""
	}
	return ptr.Deref(pod.Spec.SchedulingGroup.PodGroupName, "")
}

// status reads a condition that v1alpha3 renamed. Once the condition is True, it stays True. Its
// message only repeats its reason. The pods' messages name what is missing.
func (kubernetes) status(group *unstructured.Unstructured) SchedulerStatus {
	for _, kind := range []string{"PodGroupInitiallyScheduled", "PodGroupScheduled"} {
		if condition := conditionOf(group, kind); condition.status == string(corev1.ConditionFalse) {
			if condition.Message == saysNothing {
				condition.Message = ""
			}
			return condition.SchedulerStatus
		}
	}
	return SchedulerStatus{}
}

// StatusOfPod returns the scheduler's status from a pod. It returns the zero value for a pod that
// waits for other pods of its gang, or behind a scheduling gate.
func StatusOfPod(pod *corev1.Pod) SchedulerStatus {
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	switch {
	case scheduled == nil, scheduled.Status != corev1.ConditionFalse, scheduled.Reason == corev1.PodReasonSchedulingGated,
		strings.Contains(scheduled.Message, waitsForOthers):
		return SchedulerStatus{}
	}
	return SchedulerStatus{Reason: scheduled.Reason, Message: scheduled.Message}
}

// condition is a condition of an object's status.
type condition struct {
	status string
	SchedulerStatus
}

// conditionOf returns the condition of a type, the zero value if there is none.
func conditionOf(group *unstructured.Unstructured, kind string) condition {
	conditions, _, err := unstructured.NestedSlice(group.Object, "status", "conditions")
	if err != nil {
		return condition{}
	}
	for _, each := range conditions {
		fields, isObject := each.(map[string]any)
		if isObject && fields["type"] == kind {
			return condition{status: text(fields, "status"), SchedulerStatus: SchedulerStatus{Reason: text(fields, "reason"), Message: text(fields, "message")}}
		}
	}
	return condition{}
}

func text(fields map[string]any, key string) string {
	value, _, err := unstructured.NestedString(fields, key)
	if err != nil {
		return ""
	}
	return value
}
