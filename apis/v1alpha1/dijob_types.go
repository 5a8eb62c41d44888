// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DIJob is a distributed reinforcement-learning training job, led by its
// coordinator.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning=`diengine.opendilab.org/v1alpha1 DIJob is deprecated and still served: use diengine.opendilab.org/v2alpha1, "kubectl di convert -f FILE --to v2alpha1" converts manifests`
// +kubebuilder:resource:shortName=dijob;dj
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.extended.summary.ready`,description="ready of the desired replicas"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.extended.summary.reason`,description="why the job does not run as desired, or why it failed"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.extended.summary.restarts`,description="restarts after failures"
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.status.extended.summary.duration`,description="how long the finished job was active"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Coordinator",type=integer,priority=1,JSONPath=`.status.replicaStatus.Coordinator.active`,description="coordinators that are pending or run"
// +kubebuilder:printcolumn:name="Collectors",type=integer,priority=1,JSONPath=`.status.replicaStatus.Collector.active`,description="collectors that are pending or run"
// +kubebuilder:printcolumn:name="Learners",type=integer,priority=1,JSONPath=`.status.replicaStatus.Learner.active`,description="learners that are pending or run"
// +kubebuilder:printcolumn:name="Aggregators",type=integer,priority=1,JSONPath=`.status.replicaStatus.Aggregator.active`,description="aggregators that are pending or run"
type DIJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the job.
	// +optional
	Spec DIJobSpec `json:"spec,omitzero"`
	// status is what the operator last observed of the job.
	// +optional
	Status DIJobStatus `json:"status,omitzero"`
}

// DIJobList is a list of DIJobs.
//
// +kubebuilder:object:root=true
type DIJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DIJob `json:"items"`
}

// RawObject is an object of another API (a pod template, a volume) in the JSON
// that the user wrote. So no field that is newer than the operator is lost, and
// no default of a schema is added.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type RawObject struct {
	apiextensionsv1.JSON `json:",inline"`
}

// DIJobSpec is the desired state of a DIJob.
type DIJobSpec struct {
	// group is a free name that several jobs may share.
	// +optional
	Group string `json:"group,omitempty"`

	// priorityClassName is the PriorityClass of the job's pods.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// cleanPodPolicy decides which pods are deleted when the job has finished:
	// Running (default), All or None, in any letter case.
	// +optional
	CleanPodPolicy CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// volumes are core/v1 Volumes added to every pod of coordinator, collector
	// and learner.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Volumes []RawObject `json:"volumes,omitempty"`

	// coordinator describes the pod that leads the job. A serial job has only
	// a coordinator.
	Coordinator RoleSpec `json:"coordinator"`

	// collector describes the collectors that the coordinator may ask for.
	// +optional
	Collector *RoleSpec `json:"collector,omitempty"`

	// learner describes the learners that the coordinator may ask for.
	// +optional
	Learner *RoleSpec `json:"learner,omitempty"`

	// extended has the fields that only v2alpha1 has, under their names of
	// v2alpha1. The conversion between the versions writes it.
	// +optional
	Extended *RawObject `json:"extended,omitempty"`
}

// CleanPodPolicy decides which pods are deleted when a job has finished.
type CleanPodPolicy string

const (
	// CleanPodPolicyRunning deletes the pods that still run or are pending.
	CleanPodPolicyRunning CleanPodPolicy = "Running"
	// CleanPodPolicyAll deletes all pods.
	CleanPodPolicyAll CleanPodPolicy = "All"
	// CleanPodPolicyNone deletes no pod.
	CleanPodPolicyNone CleanPodPolicy = "None"
)

// RoleSpec describes the pods of one role.
type RoleSpec struct {
	// template is the core/v1 PodTemplateSpec of the role's pods.
	// +optional
	Template RawObject `json:"template,omitzero"`
}

// Phase is a summary of a job's state.
type Phase string

const (
	// JobCreated is a job whose coordinator exists and does not run yet.
	JobCreated Phase = "Created"
	// JobRunning is a job whose coordinator runs.
	JobRunning Phase = "Running"
	// JobSucceeded is a job whose coordinator has completed.
	JobSucceeded Phase = "Succeeded"
	// JobFailed is a job whose coordinator has failed.
	JobFailed Phase = "Failed"
	// JobUnknown is a job whose state cannot be determined.
	JobUnknown Phase = "Unknown"
)

// ReplicaType is a role, as a key of status.replicaStatus.
type ReplicaType string

const (
	// ReplicaTypeCoordinator counts coordinators.
	ReplicaTypeCoordinator ReplicaType = "Coordinator"
	// ReplicaTypeCollector counts collectors.
	ReplicaTypeCollector ReplicaType = "Collector"
	// ReplicaTypeLearner counts learners.
	ReplicaTypeLearner ReplicaType = "Learner"
	// ReplicaTypeAggregator counts aggregators.
	ReplicaTypeAggregator ReplicaType = "Aggregator"
)

// DIJobStatus is the last observation of a DIJob.
type DIJobStatus struct {
	// phase is a summary of the job's state.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// conditions are the observations that phase summarizes.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Conditions []DIJobCondition `json:"conditions,omitempty"`

	// replicaStatus counts the pods of each role by outcome.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	ReplicaStatus map[ReplicaType]*ReplicaStatus `json:"replicaStatus,omitempty"`

	// extended has the fields that only v2alpha1 has, under their names of
	// v2alpha1. The conversion between the versions writes it.
	// +optional
	Extended *RawObject `json:"extended,omitempty"`
}

// ReplicaStatus counts pods by outcome.
type ReplicaStatus struct {
	// active is the number of pods that are pending or run.
	// +optional
	Active int32 `json:"active,omitempty"`

	// succeeded is the number of pods that have succeeded.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`

	// failed is the number of pods that have failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
}

// DIJobCondition is one observation of a job.
type DIJobCondition struct {
	// type is a phase of the job, or another observation.
	Type string `json:"type"`

	// status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`

	// reason is a machine-readable reason of the last transition.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message describes the same for people.
	// +optional
	Message string `json:"message,omitempty"`

	// lastUpdateTime is when the condition was last written.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// lastTransitionTime is when status last changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}
