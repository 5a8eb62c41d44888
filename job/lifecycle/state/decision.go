// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/workload"
)

// Decision is what a reconcile changes. The fields are in the order of the writes: adoptions,
// releases, deletions, budget, Membership, PodGroup, ConfigMaps, Secrets, services, pods, the job's status, events.
type Decision struct {
	// DeleteJob is set if the job has been finished for its time to live. Nothing else is decided
	// then.
	DeleteJob bool
	// AdoptPods and AdoptServices are objects as observed, with their desired metadata. If
	// there are any, nothing else is decided.
	AdoptPods     []*corev1.Pod
	AdoptServices []*corev1.Service
	// RestorePods and RestoreServices are objects as observed, without what others changed.
	RestorePods     []*corev1.Pod
	RestoreServices []*corev1.Service
	// Elastic is the desired spec.elastic, which the scale subresource reads; nil leaves it
	// unchanged. It is written last.
	Elastic *v2alpha1.Elastic
	// Counts are counts of tasks to write into the spec; nil for none. They are written last.
	Counts *Counts
	// ReleasePods are pods as observed, without a finalizer to remove.
	ReleasePods []*corev1.Pod
	// DeletePods and DeleteServices are objects as observed.
	DeletePods     []*corev1.Pod
	DeleteServices []*corev1.Service
	// ForceDeletePods are objects as observed. They are deleted although no node confirms that they
	// have stopped.
	ForceDeletePods []*corev1.Pod
	// DeleteConfigMaps are objects as observed.
	DeleteConfigMaps []*corev1.ConfigMap
	// DeleteSecrets are Secrets with keys of ssh, by name. They are not observed, and may be gone.
	DeleteSecrets []*corev1.Secret
	// DeletePodGroups are objects as observed.
	DeletePodGroups []*unstructured.Unstructured
	// CreateBudget is a whole object, UpdateBudget an observed one with the desired changes, and
	// DeleteBudget one as observed; nil for none.
	CreateBudget, UpdateBudget, DeleteBudget *policyv1.PodDisruptionBudget
	// DeleteMembership is set if the Membership is of another job with the same name, or
	// of a suspended job.
	DeleteMembership bool
	// CreateMembership is set if there is none. No pod is created before it exists.
	CreateMembership *v2alpha1.Membership
	// UpdateMembership is the observed Membership with other members, nil for none.
	UpdateMembership *v2alpha1.Membership
	// MembershipStatus is the Membership's desired status; nil leaves it unchanged.
	MembershipStatus *v2alpha1.MembershipStatus
	// Losses describe the losses that MembershipStatus counts. They are recorded once it is
	// written.
	Losses []Event
	// CreatePodGroup is a whole object, and UpdatePodGroup an observed one with the desired
	// changes; nil for none. No pod is created before it is written.
	CreatePodGroup *unstructured.Unstructured
	UpdatePodGroup *unstructured.Unstructured
	// CreateConfigMaps are whole objects. No pod is created before they exist.
	CreateConfigMaps []*corev1.ConfigMap
	// CreateSecrets are whole objects but for the keys of ssh, which are made when they are created. They are not
	// observed, and may exist. No pod is created before they exist.
	CreateSecrets []*corev1.Secret
	// CreateServices and CreatePods are whole objects.
	CreateServices []*corev1.Service
	CreatePods     []*corev1.Pod
	// NewerFields are fields of CreatePods that the type of this release does not know, by
	// the pods' names.
	NewerFields map[string]workload.NewerFields
	// ResizePods are pods as desired, with other resources of the main container and the annotations
	// that record them.
	ResizePods []*corev1.Pod
	// More is set if more objects are missing than one batch creates.
	More bool
	// HeldBack is set if objects are not created because the API server rejected their
	// kind.
	HeldBack bool
	// Waits is set if a creation waits until an earlier job's object with the same name is gone.
	Waits bool
	// Conflicts describe the names that other owners have and keep.
	Conflicts []string
	// Lacking counts the missing objects, by kind, whether they are created now or later.
	Lacking map[string]int
	// Status is the job's whole planned status. Fields of other writers are as observed.
	Status v2alpha1.DIJobStatus
	// Events describe changes in Status.
	Events []Event
	// Failures are the ends of pods that Status records, the most serious first.
	Failures []Failure
	// ReplicaRestarts are those of Failures after which only the replica restarts.
	ReplicaRestarts []Failure
	// Adjustments are the reasons of the overrides that Status records now.
	Adjustments []string
	// RequeueAfter is after how long the job is reconciled again even if nothing changes; 0 for
	// never.
	RequeueAfter time.Duration
}

// Counts are counts of tasks that another decision than the spec requested.
type Counts struct {
	// Manager is the field manager to write them as. It names what requested them.
	Manager string
	Tasks   []Count
}

// Count is the desired count of a task.
type Count struct {
	// Task is the index of the task in the spec.
	Task int
	// IsElastic is set if spec.elastic.replicas has the count, too.
	IsElastic bool
	Replicas  int32
}

// Event is an event about the job.
type Event struct {
	// Type is Normal or Warning.
	Type string
	// Reason is machine-readable, the condition's if there is one.
	Reason string
	// Message describes the event for people.
	Message string
	// Pod is the name of the pod that the event is about, "" for none. If several events about one
	// object have the same reason, recorders keep only the first message.
	Pod string
}

// Rule is one step of a decision. It reads the input and adds to the plan. Rules apply in order
// until one settles the decision.
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

// Apply applies rules in order until one settles the decision, and reports whether one did.
type Apply func([]Rule) Result

// Outcome is what the rules of a job have come to. It completes the decision.
type Outcome interface {
	// Summarize writes the counts of the pods and, unless a rule has set it, the phase.
	Summarize()
	// Report sets the conditions that not every job has.
	Report()
	// Desired returns the names of the pods that the job desires and that have not completed; false
	// if they are unknown.
	Desired() (pods map[string]bool, isKnown bool)
}

// IsAdoption reports whether something is adopted, so that nothing else is decided.
func (d *Decision) IsAdoption() bool {
	return len(d.AdoptPods)+len(d.AdoptServices) > 0
}

// Requeue reconciles the job again after a delay, or sooner.
func (d *Decision) Requeue(delay time.Duration) {
	d.RequeueAfter = Sooner(d.RequeueAfter, delay)
}

// Sooner returns the shorter of two delays; 0 is never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
