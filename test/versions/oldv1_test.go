// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"encoding/json"
	"fmt"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// oldV1Job is a DIJob in a Go client built against release v0.2.2: typed pod templates, no
// extended, and all three roles always written.
type oldV1Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   oldV1Spec   `json:"spec,omitempty"`
	Status oldV1Status `json:"status,omitempty"`
}

type oldV1Spec struct {
	Group             string          `json:"group,omitempty"`
	PriorityClassName string          `json:"priorityClassName,omitempty"`
	CleanPodPolicy    string          `json:"cleanPodPolicy,omitempty"`
	Volumes           []corev1.Volume `json:"volumes,omitempty"`
	Coordinator       oldV1Role       `json:"coordinator"`
	Collector         oldV1Role       `json:"collector"`
	Learner           oldV1Role       `json:"learner"`
}

type oldV1Role struct {
	Template oldTemplate `json:"template"`
}

type oldV1Status struct {
	Phase         string                    `json:"phase,omitempty"`
	Conditions    []oldCondition            `json:"conditions,omitempty"`
	ReplicaStatus map[string]*oldV1Replicas `json:"replicaStatus,omitempty"`
}

type oldV1Replicas struct {
	Active    int32 `json:"active,omitempty"`
	Succeeded int32 `json:"succeeded,omitempty"`
	Failed    int32 `json:"failed,omitempty"`
}

// oldCondition is a condition of both releases: absent times are encoded as null.
type oldCondition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
	LastUpdateTime     metav1.Time            `json:"lastUpdateTime,omitempty"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitempty"`
}

// oldTemplate is a pod template of clients of the old releases: an absent creationTimestamp is
// encoded as null.
type oldTemplate struct {
	corev1.PodTemplateSpec
}

// MarshalJSON implements json.Marshaler.
func (t oldTemplate) MarshalJSON() ([]byte, error) {
	encoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&t.PodTemplateSpec)
	if err != nil {
		return nil, fmt.Errorf("encoding a template: %w", err)
	}
	metadata, ok := encoded["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		encoded["metadata"] = metadata
	}
	metadata["creationTimestamp"] = nil
	return json.Marshal(encoded)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *oldTemplate) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &t.PodTemplateSpec)
}

// DeepCopyObject implements runtime.Object.
func (j *oldV1Job) DeepCopyObject() runtime.Object {
	return copyOf(j, &oldV1Job{})
}

// copyOf copies through JSON, so that these types need no generated deep copies.
func copyOf[T runtime.Object](from, to T) T {
	raw, err := json.Marshal(from)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(raw, to)).To(Succeed())
	return to
}
