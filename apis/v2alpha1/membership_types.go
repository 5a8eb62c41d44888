// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Membership lists the replicas that a coordinator-led job is meant to have
// beyond its coordinator. It bears the name of its job and is owned by it. Its
// spec is written by di-server, but for the operator's creation of the object;
// its status by the operator. The list, not the pods, is the truth.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.members`
// +kubebuilder:printcolumn:name="Lost",type=integer,JSONPath=`.status.lost`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Membership struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the coordinator asked for; written by di-server.
	// +optional
	Spec MembershipSpec `json:"spec,omitzero"`
	// status is what became of it; written by the operator.
	// +optional
	Status MembershipStatus `json:"status,omitzero"`
}

// MembershipList is a list of Memberships.
//
// +kubebuilder:object:root=true
type MembershipList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Membership `json:"items"`
}

// MembershipSpec is the wanted replicas of a job.
type MembershipSpec struct {
	// jobUID is the UID of the job; an object that records another is stale.
	JobUID types.UID `json:"jobUID"`

	// members are the wanted replicas, oldest first. No two have one slot.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Members []Member `json:"members,omitempty"`

	// lingering are lost pods of members that were removed later, and pods that
	// stood for no member when the list was built from pods: their URLs stay
	// listed until they are reported failed, or the coordinator was restarted.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Lingering []LingeringPod `json:"lingering,omitempty"`

	// coordinator is the container of the coordinator that last asked for
	// replicas, its pod's UID and its restarts: the first request of another
	// one creates only what is missing. In a list that was built from pods it is
	// the one that was there then, "gone" where there was none.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Coordinator string `json:"coordinator,omitempty"`

	// requests are the last requests and their answers, so that a repeated
	// request is answered and not done again.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Requests []RecordedRequest `json:"requests,omitempty"`
}

// Member is one wanted replica: a plain collector or learner, or a learner of
// several GPUs, which is an aggregator and its DDP learners.
type Member struct {
	// slot identifies the member for its life, however often its pod is replaced.
	// +kubebuilder:validation:MaxLength=253
	Slot string `json:"slot"`

	// task is the role of the member, collector or learner.
	// +kubebuilder:validation:Enum=collector;learner
	Task TaskType `json:"task"`

	// podName is the name that the member's first pod was given; for a learner
	// of several GPUs that of its aggregator.
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName"`

	// resources are what was asked for beyond the template.
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

	// ddpPodNames are the names of the DDP learner pods that go with podName, in
	// rank order, where an earlier release named them at random; empty where
	// they follow from podName, as those of all later pods do.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	DDPPodNames []string `json:"ddpPodNames,omitempty"`

	// reported is how often the member's pod was reported failed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Reported int32 `json:"reported,omitempty"`

	// listedFrom is the first of the member's pods, counted from 0, that is
	// still listed: the URL of a lost pod stays beside its replacement's.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2000000
	// +optional
	ListedFrom int32 `json:"listedFrom,omitempty"`

	// delisted are those of the pods after it that are listed no more, as they
	// were reported failed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Delisted []int32 `json:"delisted,omitempty"`
}

// LingeringPod is a pod that is no member's, or none's any more, and whose URL
// a coordinator may know.
type LingeringPod struct {
	// task is the role that the member had, collector or learner.
	Task TaskType `json:"task"`

	// podName is the name of the pod; for a learner of several GPUs that of its
	// aggregator.
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName"`

	// port is the port that it served on; 0 where that is not known.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
}

// MemberResources are resources asked for in a request; what is absent keeps
// the template's.
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

// RecordedRequest is a request that was done, and its answer.
type RecordedRequest struct {
	// key identifies the request: its Idempotency-Key, else the container that
	// sent it and a digest of what it asked. It is empty once the same is a
	// new request: after a later removal, or when a removal is answered.
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`

	// id is di-server's own name of the HTTP request, by which it finds out
	// whether a write was done of which it lost the answer.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ID string `json:"id,omitempty"`

	// time is when the request was done.
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

// MembershipStatus is what became of the wanted replicas.
type MembershipStatus struct {
	// members is how many replicas the list had when it was last observed.
	// +optional
	Members int32 `json:"members,omitempty"`

	// lost is how often a replica of those was lost.
	// +optional
	Lost int32 `json:"lost,omitempty"`

	// slots are the observations of each member.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Slots []SlotStatus `json:"slots,omitempty"`
}

// SlotStatus is what became of one member.
type SlotStatus struct {
	// slot identifies the member.
	// +kubebuilder:validation:MaxLength=253
	Slot string `json:"slot"`

	// lost is how often a pod of the member was lost: evicted, deleted by
	// hand, or gone with its node.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Lost int32 `json:"lost,omitempty"`

	// launched is the name of the member's last pod that was seen to exist.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Launched string `json:"launched,omitempty"`

	// phase is the phase of the member's pod.
	// +optional
	Phase corev1.PodPhase `json:"phase,omitempty"`

	// ports are the ports that the member's pods served on, so that the URL of
	// one that is gone stays what it was.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Ports []SlotPort `json:"ports,omitempty"`
}

// SlotPort is the port of some of a member's pods in turn.
type SlotPort struct {
	// from is the first of the member's pods, counted from 0, that served on it.
	// +optional
	From int32 `json:"from,omitempty"`

	// port is the port.
	Port int32 `json:"port"`
}
