// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AggregatorConfig holds the template of aggregators, which learners of several
// GPUs have. The one in namespace di-system is the cluster's default.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=agconfig
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AggregatorConfig struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +optional
	Spec AggregatorConfigSpec `json:"spec,omitzero"`
}

// AggregatorConfigList is a list of AggregatorConfigs.
//
// +kubebuilder:object:root=true
type AggregatorConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AggregatorConfig `json:"items"`
}

// AggregatorConfigSpec is the content of an AggregatorConfig.
type AggregatorConfigSpec struct {
	// aggregator describes the aggregators.
	// +optional
	Aggregator AggregatorSpec `json:"aggregator,omitzero"`
}

// AggregatorSpec describes aggregators.
type AggregatorSpec struct {
	// template is the core/v1 PodTemplateSpec of aggregator pods.
	// +optional
	Template RawObject `json:"template,omitzero"`
}
