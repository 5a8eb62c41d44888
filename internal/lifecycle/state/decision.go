// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/workload"
)

// Decision is what to do, in the order of its fields: adoptions, releases, deletions,
// Membership, PodGroup, ConfigMaps, services, pods, the job's status, events.
type Decision struct {
	// DeleteJob is set if the job has been finished for its time to live; nothing else is
	// decided then.
	DeleteJob bool
	// AdoptPods and AdoptServices are objects as observed, with their desired metadata. If
	// there are any, nothing else is decided.
	AdoptPods     []*corev1.Pod
	AdoptServices []*corev1.Service
	// Elastic is the desired spec.elastic, which the scale subresource reads; nil to leave
	// it. It is written last.
	Elastic *v2alpha1.Elastic
	// ReleasePods are pods as observed, without a finalizer to remove.
	ReleasePods []*corev1.Pod
	// DeletePods and DeleteServices are objects as they were observed.
	DeletePods     []*corev1.Pod
	DeleteServices []*corev1.Service
	// ForceDeletePods are objects as observed, which are deleted although no node confirms
	// that they have stopped.
	ForceDeletePods []*corev1.Pod
	// DeleteConfigMaps are objects as they were observed.
	DeleteConfigMaps []*corev1.ConfigMap
	// DeletePodGroups are objects as they were observed.
	DeletePodGroups []*unstructured.Unstructured
	// DeleteMembership is set if the Membership is of another job with the same name, or
	// of a suspended job.
	DeleteMembership bool
	// CreateMembership is set if there is none. No pod is created before it exists.
	CreateMembership *v2alpha1.Membership
	// MembershipStatus is the Membership's desired status, nil to leave it.
	MembershipStatus *v2alpha1.MembershipStatus
	// Losses describe replicas that MembershipStatus counts as lost; they are recorded
	// once it is written.
	Losses []Event
	// CreatePodGroup is a whole object, and UpdatePodGroup an observed one as desired; nil
	// for none. No pod is created before it is written.
	CreatePodGroup *unstructured.Unstructured
	UpdatePodGroup *unstructured.Unstructured
	// CreateConfigMaps are whole objects. No pod is created before they exist.
	CreateConfigMaps []*corev1.ConfigMap
	// CreateServices and CreatePods are whole objects.
	CreateServices []*corev1.Service
	CreatePods     []*corev1.Pod
	// NewerFields are fields of CreatePods that the type of this release does not know, by
	// the pods' names.
	NewerFields map[string]workload.NewerFields
	// More is set if more objects are missing than one batch creates.
	More bool
	// HeldBack is set if objects are not created because the API server rejected their
	// kind.
	HeldBack bool
	// Waits is set if something is not created before an earlier job's object with its
	// name is gone.
	Waits bool
	// Conflicts describe the names that other owners have and do not give up.
	Conflicts []string
	// Lacking counts the missing objects, by kind, whether they are created now or later.
	Lacking map[string]int
	// Status is the job's whole planned status. Fields of other writers are as observed.
	Status v2alpha1.DIJobStatus
	// Events describe changes in Status.
	Events []Event
	// Failures are the ends of pods that Status records, the gravest first.
	Failures []Failure
	// ReplicaRestarts are those of them after which only the replica restarts.
	ReplicaRestarts []Failure
	// RequeueAfter is after how long to reconcile again even if nothing changes; 0 for
	// never.
	RequeueAfter time.Duration
}

// Event is an event about the job.
type Event struct {
	// Type is Normal or Warning.
	Type string
	// Reason is machine-readable, the condition's if there is one.
	Reason string
	// Message describes it to a person.
	Message string
	// Pod is the name of the pod that it is about, "" for none. Of several events with one
	// reason about the same object, recorders keep the first message only.
	Pod string
}

// Rule is one step of a decision. It reads the input and adds to the plan.
// Rules apply in order until one settles the decision.
type Rule struct {
	Name  string
	Apply func() Result
}

// Result reports whether the following rules still apply.
type Result bool

const (
	// Continue applies the following rules.
	Continue Result = false
	// Settled ends the rules.
	Settled Result = true
)

// IsAdoption reports whether something is adopted, so that nothing else is decided.
func (d *Decision) IsAdoption() bool {
	return len(d.AdoptPods)+len(d.AdoptServices) > 0
}

// Requeue reconciles the job again after a delay, or sooner.
func (d *Decision) Requeue(delay time.Duration) {
	d.RequeueAfter = Sooner(d.RequeueAfter, delay)
}

// Sooner returns the shorter of two delays, of which 0 is never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
