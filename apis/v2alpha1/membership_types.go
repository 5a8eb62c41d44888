// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Membership lists the desired replicas of a coordinator-led job, without its
// coordinator. It has the name of its job, and the job owns it. di-server writes
// its spec, except that the operator creates the object and edits the members for
// ScalePlans and ratio rules; the operator writes its status. The list, not the
// pods, is the source of truth.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.members`
// +kubebuilder:printcolumn:name="Losses",type=integer,JSONPath=`.status.losses`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Membership struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what was requested; written by di-server, and for plans and ratio
	// rules by the operator.
	// +optional
	Spec MembershipSpec `json:"spec,omitzero"`
	// status is what the operator observed; written by the operator.
	// +optional
	Status MembershipStatus `json:"status,omitzero"`
}

// NoCoordinatorInstance is the coordinatorInstance of a list that was rebuilt
// from pods while there was no coordinator.
const NoCoordinatorInstance = "None"

// MembershipList is a list of Memberships.
//
// +kubebuilder:object:root=true
type MembershipList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Membership `json:"items"`
}

// MembershipSpec is the desired replicas of a job.
type MembershipSpec struct {
	// jobUID is the UID of the job; an object that records another is stale.
	JobUID types.UID `json:"jobUID"`

	// members are the desired replicas, oldest first. Slots are unique.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Members []Member `json:"members,omitempty"`

	// retainedPods are pods that belong to no member and are still advertised:
	// lost pods of members that were removed later, and pods that matched no
	// member when the list was rebuilt from pods. A URL is withdrawn when the
	// coordinator reports the pod failed, or restarts.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	RetainedPods []RetainedPod `json:"retainedPods,omitempty"`

	// coordinatorInstance is the run of the coordinator's container that last
	// requested replicas, as "podUID/restarts". The first request of another
	// instance creates only what is missing. In a list that was rebuilt from pods
	// it is the instance at that time, or "None" if there was no coordinator.
	// Empty means that no coordinator has requested replicas yet.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CoordinatorInstance string `json:"coordinatorInstance,omitempty"`

	// requests are the last requests and their answers. A repeated request gets
	// the recorded answer and has no further effect.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Requests []RecordedRequest `json:"requests,omitempty"`
}

// Member is one desired replica: a plain collector or learner, or a learner of
// several GPUs, which is an aggregator and its DDP learners.
type Member struct {
	// slot identifies the member. It stays the same when the pod is replaced.
	// +kubebuilder:validation:MaxLength=253
	Slot string `json:"slot"`

	// task is the role of the member, collector or learner.
	// +kubebuilder:validation:Enum=collector;learner
	Task TaskType `json:"task"`

	// podName is the name of the member's first pod; for a learner of several
	// GPUs that of its aggregator.
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName"`

	// resources are the requested resources that differ from the template.
	// +optional
	Resources MemberResources `json:"resources,omitzero"`

	// ddpGPUs are the GPUs of each DDP learner pod of a learner of several
	// GPUs, in rank order; empty for a plain replica.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=4096
	// +optional
	DDPGPUs []int32 `json:"ddpGPUs,omitempty"`

	// ddpPodNames are the names of the DDP learner pods of podName, in rank order,
	// if an earlier release gave them random names. It is empty if the names are
	// derived from podName, like those of all later pods.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	DDPPodNames []string `json:"ddpPodNames,omitempty"`

	// failureReports counts how often the coordinator reported the member's pod failed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	FailureReports int32 `json:"failureReports,omitempty"`

	// advertisedFrom is the number, from 0, of the member's first pod that is
	// still advertised. The URL of a lost pod is advertised beside that of its
	// replacement.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2000000
	// +optional
	AdvertisedFrom int32 `json:"advertisedFrom,omitempty"`

	// withdrawn are the numbers of later pods that are no longer advertised
	// because they were reported failed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Withdrawn []int32 `json:"withdrawn,omitempty"`
}

// RetainedPod is a pod that belongs to no member and whose URL a coordinator may
// still know.
type RetainedPod struct {
	// task is the role that the member had, collector or learner.
	Task TaskType `json:"task"`

	// podName is the name of the pod; for a learner of several GPUs that of its
	// aggregator.
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName"`

	// port is the port that it served on; 0 if it is unknown.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
}

// MemberResources are the resources of a request. An absent one keeps the
// template's value.
type MemberResources struct {
	// cpus is the CPU, in cores.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?0*([0-9]|1[0-8]))?$`
	// +optional
	CPUs *resource.Quantity `json:"cpus,omitempty"`

	// gpus is the number of GPUs.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?0*([0-9]|1[0-8]))?$`
	// +optional
	GPUs *resource.Quantity `json:"gpus,omitempty"`

	// memory is the memory, in bytes.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?0*([0-9]|1[0-8]))?$`
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// RecordedRequest is a completed request and its answer.
type RecordedRequest struct {
	// key identifies the request: its Idempotency-Key, or else the container that
	// sent it and a digest of its content. It is empty once the same content
	// counts as a new request: after a later removal, or after a removal's answer.
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`

	// id is di-server's identifier of the HTTP request. After a lost response it
	// shows whether the write was applied.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ID string `json:"id,omitempty"`

	// time is when the request was completed.
	Time metav1.Time `json:"time"`

	// collectors are the URLs of collectors in the answer.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4000
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	Collectors []string `json:"collectors,omitempty"`

	// learners are the URLs of learners in the answer.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4000
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	Learners []string `json:"learners,omitempty"`

	// message is the answer to a request for a worker-led job, which has no URLs.
	// +optional
	Message string `json:"message,omitempty"`
}

// MembershipStatus is what the operator observed of the desired replicas.
type MembershipStatus struct {
	// members is the number of members when the list was last observed.
	// +optional
	Members int32 `json:"members,omitempty"`

	// losses counts how often a pod of these members was lost.
	// +optional
	Losses int32 `json:"losses,omitempty"`

	// slots are the observations of each member.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Slots []SlotStatus `json:"slots,omitempty"`

	// lastGroup is the number of the last group of members that queue with Kueue.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LastGroup int32 `json:"lastGroup,omitempty"`

	// groups are the groups of members that queue with Kueue. Kueue admits each as a whole.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Groups []MemberGroup `json:"groups,omitempty"`
}

// MemberGroup is a group of members that were added to a job together.
type MemberGroup struct {
	// number ends the name of the group.
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`

	// pods is the number of pods of the group, which never changes.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=100000
	Pods int32 `json:"pods"`

	// created reports whether a pod of the group was observed.
	// +optional
	Created bool `json:"created,omitempty"`

	// free are the shapes of the members that have left an admitted group. Kueue keeps
	// their quota for the members of these shapes that are added next.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	Free []string `json:"free,omitempty"`
}

// SlotStatus is what the operator observed of one member.
type SlotStatus struct {
	// slot identifies the member.
	// +kubebuilder:validation:MaxLength=253
	Slot string `json:"slot"`

	// rank is the number of the member, from 1, in a job that has a task with drain.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Rank int32 `json:"rank,omitempty"`

	// losses counts how often a pod of the member was lost: evicted, deleted by
	// hand, or on a node that is gone.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Losses int32 `json:"losses,omitempty"`

	// observedPod is the name of the member's youngest pod that was observed.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ObservedPod string `json:"observedPod,omitempty"`

	// phase is the phase of the member's pod.
	// +optional
	Phase corev1.PodPhase `json:"phase,omitempty"`

	// group is the number of the group in which the member's pods queue with Kueue; 0 if
	// each queues by itself.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Group int32 `json:"group,omitempty"`

	// shape identifies what the pods of a member that queues in a group request.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Shape string `json:"shape,omitempty"`

	// ports are the ports that the member's pods served on, so that the URL of a
	// lost pod does not change.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Ports []SlotPort `json:"ports,omitempty"`
}

// SlotPort is the port of a range of a member's pods.
type SlotPort struct {
	// from is the number, from 0, of the first pod that served on it.
	// +optional
	From int32 `json:"from,omitempty"`

	// port is the port.
	Port int32 `json:"port"`
}
