// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// oldV2Job is a DIJob in a Go client built against release v1.1.3: typed pod templates, replicas
// that cannot be zero, empty profilings, and none of the later fields of v2alpha1.
type oldV2Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   oldV2Spec   `json:"spec,omitempty"`
	Status oldV2Status `json:"status,omitempty"`
}

type oldV2Spec struct {
	Priority       string          `json:"priority,omitempty"`
	CleanPodPolicy string          `json:"cleanPodPolicy,omitempty"`
	Preemptible    bool            `json:"preemptible,omitempty"`
	BackoffLimit   *int32          `json:"backoffLimit,omitempty"`
	Volumes        []corev1.Volume `json:"volumes,omitempty"`
	Tasks          []oldV2Task     `json:"tasks"`
}

type oldV2Task struct {
	Replicas int32       `json:"replicas,omitempty"`
	Type     string      `json:"type,omitempty"`
	Name     string      `json:"name,omitempty"`
	Template oldTemplate `json:"template,omitempty"`
}

type oldV2Status struct {
	CompletionTimestamp *metav1.Time                         `json:"completionTimestamp,omitempty"`
	Restarts            int32                                `json:"restarts,omitempty"`
	Reschedules         int32                                `json:"reschedules,omitempty"`
	Phase               string                               `json:"phase,omitempty"`
	Replicas            int32                                `json:"replicas,omitempty"`
	TaskStatus          map[string]map[corev1.PodPhase]int32 `json:"taskStatus,omitempty"`
	ReadyReplicas       int32                                `json:"readyReplicas,omitempty"`
	Allocation          []string                             `json:"allocation,omitempty"`
	Profilings          struct{}                             `json:"profilings,omitempty"`
	Conditions          []oldCondition                       `json:"conditions,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (j *oldV2Job) DeepCopyObject() runtime.Object {
	return copyOf(j, &oldV2Job{})
}
