// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/workload"
)

// DefaultDrain is how long a replica that was removed or reported keeps running, so that
// a coordinator connected to it can disconnect.
const DefaultDrain = 10 * time.Second

// Observed is the state of a job and its objects at one moment.
type Observed struct {
	// Job is the job. Decide does not change it.
	Job *v2alpha1.DIJob
	// Pods are the pods whose controller is the job.
	Pods []*corev1.Pod
	// Services are the services whose controller is the job.
	Services []*corev1.Service
	// ConfigMaps are those whose controller is a worker-led job. They list the peers of its pods.
	ConfigMaps []*corev1.ConfigMap
	// Budget is the PodDisruptionBudget whose controller is the job, nil if there is none.
	Budget *policyv1.PodDisruptionBudget
	// Membership lists a coordinator-led job's replicas, nil if there is none.
	Membership *v2alpha1.Membership
	// Plans are the unfinished ScalePlans that name the job.
	Plans []*v2alpha1.ScalePlan
	// AggregatorConfig is the AggregatorConfig that the job uses, nil if there is none.
	AggregatorConfig *v2alpha1.AggregatorConfig
	// AggregatorConfigNotShared is the AggregatorConfig that the job names but may not use, as
	// namespace/name; empty otherwise.
	AggregatorConfigNotShared string
	// Confirmed is set if Membership and the unconfirmed pods were read live.
	Confirmed bool
	// Now is the time of the observation.
	Now time.Time
	// since is when this operator first saw what ends by time; Sightings.See sets it.
	since map[string]time.Time
	// Written is when this operator last wrote the status of the job or of its Membership; the zero
	// time if it does not know.
	Written time.Time
	// TakenPods, TakenServices, TakenConfigMaps and TakenBudgets are the names that other owners
	// have, according to this operator.
	TakenPods       map[string]Taken
	TakenServices   map[string]Taken
	TakenConfigMaps map[string]Taken
	TakenBudgets    map[string]Taken
	// LeftBehind are objects that an earlier job of the name controls.
	LeftBehind []Object
	// Strays are pods that were built for the job and have no owner, by name: others removed it while no operator saw that.
	Strays map[string]Taken
	// Refused is what the API server rejected, by kind, according to this operator.
	Refused map[string]Refusal
	// ProbeKills describe how a liveness or startup probe ended pods, by UID; "" and none are other pods.
	ProbeKills map[types.UID]string
	// ShardLabel is the label of the job's shard on its pods, "" if there is only one shard.
	ShardLabel string
	// Settings are the settings of the installation.
	Settings workload.Settings
	// Drain is the drain time of a removed or reported replica.
	Drain time.Duration
	// ForceDeleteAfter is how long a pod may still exist after its grace period before its force
	// deletion; 0 is forever.
	ForceDeleteAfter time.Duration
	// History is whether jobs stay until the history has recorded their end.
	History History
	// Nodes are the nodes that FindStuckNodes names, by name; nil is a node that is gone.
	Nodes map[string]*corev1.Node
	Rightsizing
	// NoAllocator is set if the operator places no preemptible jobs.
	NoAllocator bool
	// Kueue is set if the queues that jobs name are Kueue's.
	Kueue bool
	// QueueWords are what Kueue says about why pods wait, "" if it says nothing.
	QueueWords string
	// NoKueue is set if the job names a queue, and Kueue is not installed.
	NoKueue bool
	// Gangs are the available gang schedulers.
	Gangs Gangs
	// PodGroups are the PodGroups whose controller is the job: one, or none.
	PodGroups []*unstructured.Unstructured
}

// Object is an object of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// History is whether jobs stay until the history has recorded their end.
type History struct {
	Required bool
	// Timeout is how long a deleted job waits for that: DefaultHistoryTimeout by default.
	Timeout time.Duration
}

// DefaultHistoryTimeout is how long a deleted job waits for the history.
const DefaultHistoryTimeout = 10 * time.Minute

// Rightsizing is what limits and informs a change of resources.
type Rightsizing struct {
	// ResizesPods is set if the API server serves the resize of pods in place.
	ResizesPods bool
	// ResizeTimeout is how long a pod may take to be resized in place; DefaultResizeTimeout by
	// default.
	ResizeTimeout time.Duration
	// MaxMemory is the maximum memory that the installation gives a replica; DefaultMaxMemory by
	// default.
	MaxMemory *resource.Quantity
	// LargestNode is the allocatable memory of the largest node, nil if it is unknown.
	LargestNode *resource.Quantity
	// GroupJob is the newest other job of the job's group that needed more memory, "" for none.
	// GroupOverrides are its overrides.
	GroupJob       string
	GroupOverrides []v2alpha1.ResourceOverride
}

// DefaultResizeTimeout is how long a pod may take to be resized in place.
const DefaultResizeTimeout = time.Minute

// DefaultMaxMemory returns the maximum memory of a replica after out-of-memory kills: 64Gi.
func DefaultMaxMemory() resource.Quantity {
	return *resource.NewQuantity(64<<30, resource.BinarySI)
}

// Gangs are the gang schedulers of the cluster.
type Gangs struct {
	// Setting is the gang scheduler that the installation chose.
	Setting gang.Setting
	// Served are the providers whose API is served, in the order of gang.Providers.
	Served []gang.Provider
}

// IsCoordinatorLed reports whether a job is coordinator-led, and not worker-led.
func IsCoordinatorLed(job *v2alpha1.DIJob) bool {
	return job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed
}

// IsLeftAlone reports whether the operator does nothing for a job: another controller manages it,
// or it is being deleted and the garbage collector deletes its objects. One that is held ends all the same,
// see Terminate.
func IsLeftAlone(job *v2alpha1.DIJob) bool {
	if !job.DeletionTimestamp.IsZero() {
		return true
	}
	return names.OtherManager(&job.Spec) != ""
}
