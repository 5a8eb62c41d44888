// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScalePlan changes replicas and resources of one job, once. A user or an
// optimizer creates it, the operator executes it and records the result. One plan
// of a job is active at a time: a newer plan supersedes an older one.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=scaleplan
// +kubebuilder:selectablefield:JSONPath=`.spec.job`
// +kubebuilder:printcolumn:name="Job",type=string,JSONPath=`.spec.job`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Origin",type=string,JSONPath=`.spec.origin`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",fieldPath=".spec",message="is immutable: create another plan, which supersedes this one"
type ScalePlan struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the requested change. Immutable.
	Spec ScalePlanSpec `json:"spec"`
	// status is the progress of the plan; written by the operator.
	// +optional
	Status ScalePlanStatus `json:"status,omitzero"`
}

// ScalePlanList is a list of ScalePlans.
//
// +kubebuilder:object:root=true
type ScalePlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScalePlan `json:"items"`
}

// ScalePlanSpec is a requested change of one job.
//
// +kubebuilder:validation:XValidation:rule="(has(self.tasks) && self.tasks.size() > 0) || (has(self.launch) && self.launch.size() > 0) || (has(self.remove) && self.remove.size() > 0) || (has(self.migrate) && self.migrate.size() > 0)",message="must change something: tasks, launch, remove or migrate"
type ScalePlanSpec struct {
	// job is the name of the job, in the namespace of the plan.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Job string `json:"job"`

	// tasks are the new replicas and resources of whole tasks.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Tasks []TaskScale `json:"tasks,omitempty"`

	// launch are names of pods to create beside the existing ones. Their task gets
	// as many replicas more.
	// +listType=set
	// +kubebuilder:validation:MaxItems=2000
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Launch []string `json:"launch,omitempty"`

	// remove are names of pods to remove. Their task gets as many replicas fewer.
	// +listType=set
	// +kubebuilder:validation:MaxItems=2000
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Remove []string `json:"remove,omitempty"`

	// migrate are pods to replace: by pods of the same rank with other resources,
	// or on other nodes.
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Migrate []PodMigration `json:"migrate,omitempty"`

	// origin is what created the plan: Manual (default) or an optimizer.
	// +kubebuilder:default=Manual
	// +optional
	Origin PlanOrigin `json:"origin,omitempty"`

	// reason describes for people why the plan was created.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// deadlineSeconds is how long the plan may execute, in seconds; after that it
	// fails. 600 by default.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	DeadlineSeconds *int32 `json:"deadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is how long the finished plan is kept, in seconds.
	// By default it is kept while it is among the last ten of its job.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// PlanOrigin is what created a plan.
// +kubebuilder:validation:Enum=Manual;Optimizer
type PlanOrigin string

const (
	// PlanManual is a plan that a user or another program created.
	PlanManual PlanOrigin = "Manual"
	// PlanOptimizer is a plan of the operator's optimizer.
	PlanOptimizer PlanOrigin = "Optimizer"
)

// TaskScale is the new size of a task.
type TaskScale struct {
	// name is the name of the task.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// replicas is the new number of replicas; absent to keep it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// resources are the new requests of each replica; absent to keep them.
	// +optional
	Resources ReplicaResources `json:"resources,omitzero"`
}

// PodMigration replaces a pod.
type PodMigration struct {
	// pod is the name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// resources are the requests of the new pod; absent to keep them.
	// +optional
	Resources ReplicaResources `json:"resources,omitzero"`
}

// ReplicaResources are requests of a replica's main container. An absent one is
// unchanged. A limit of the template keeps its ratio to the request.
type ReplicaResources struct {
	// cpu is the CPU, in cores.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?0*([0-9]|1[0-8]))?$`
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// memory is the memory, in bytes.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?0*([0-9]|1[0-8]))?$`
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// PlanPhase is the progress of a plan.
// +kubebuilder:validation:MaxLength=63
type PlanPhase string

const (
	// PlanPending is a plan that the operator has not accepted yet.
	PlanPending PlanPhase = "Pending"
	// PlanExecuting is a plan that the operator executes.
	PlanExecuting PlanPhase = "Executing"
	// PlanSucceeded is a plan whose replicas and resources the job has.
	PlanSucceeded PlanPhase = "Succeeded"
	// PlanFailed is a plan that was not complete at its deadline.
	PlanFailed PlanPhase = "Failed"
	// PlanSuperseded is a plan that a newer plan replaced.
	PlanSuperseded PlanPhase = "Superseded"
	// PlanRefused is a plan that cannot be executed. It changed nothing.
	PlanRefused PlanPhase = "Refused"
)

// ScalePlanStatus is the progress of a plan.
type ScalePlanStatus struct {
	// phase is the progress of the plan.
	// +optional
	Phase PlanPhase `json:"phase,omitempty"`

	// message describes the progress for people.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Message string `json:"message,omitempty"`

	// conditions are Accepted, and Complete.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// startTime is when the operator started to execute the plan.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the plan finished.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// Conditions of a ScalePlan.
const (
	// PlanConditionAccepted is True once the plan was found executable. The job executes it then, unless a
	// newer plan supersedes it before.
	PlanConditionAccepted = "Accepted"
	// PlanConditionComplete is True once the job has the replicas and resources of the plan.
	PlanConditionComplete = "Complete"
)
