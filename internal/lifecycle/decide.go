// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
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
	// ConfigMaps are those whose controller is a worker-led job. They list the peers of
	// its pods.
	ConfigMaps []*corev1.ConfigMap
	// Membership lists a coordinator-led job's replicas, nil if there is none.
	Membership *v2alpha1.Membership
	// AggregatorConfig is the one that the job uses, nil if there is none.
	AggregatorConfig *v2alpha1.AggregatorConfig
	// AggregatorConfigNotShared names the one that the job names and may not use, as
	// namespace/name; empty otherwise.
	AggregatorConfigNotShared string
	// Confirmed is set if Membership and the unconfirmed pods were read live.
	Confirmed bool
	// Now is the time of the observation.
	Now time.Time
	// Written is when the operator last wrote the status of the job or of its Membership,
	// as far as it knows; the zero time otherwise.
	Written time.Time
	// TakenPods, TakenServices and TakenConfigMaps are the names that other owners have,
	// as far as this operator knows.
	TakenPods       map[string]Taken
	TakenServices   map[string]Taken
	TakenConfigMaps map[string]Taken
	// Refused is what the API server rejected, by kind, as far as this operator knows.
	Refused map[string]Refusal
	// Settings are those of the installation.
	Settings workload.Settings
	// Drain is how long a removed or reported replica keeps running.
	Drain time.Duration
	// ForceDeleteAfter is how long a pod may still exist after its grace period before it
	// is deleted by force; 0 for ever.
	ForceDeleteAfter time.Duration
	// Nodes are those that FindStuckNodes names, by name; nil stands for a node that is
	// gone.
	Nodes map[string]*corev1.Node
	// NoAllocator is set if the operator places no preemptible jobs.
	NoAllocator bool
	// Kueue is set if the queues that jobs name are queues of Kueue.
	Kueue bool
	// Gangs are the available gang schedulers.
	Gangs Gangs
	// PodGroups are the objects of gang schedulers whose controller is the job: one, or
	// none.
	PodGroups []*unstructured.Unstructured
}

// Gangs are the gang schedulers of the cluster.
type Gangs struct {
	// Setting is the gang scheduler that the installation chose.
	Setting gang.Setting
	// Served are those whose API is served, in the order of gang.Providers.
	Served []gang.Provider
}

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

// rule is one step of a decision. It reads the input of a plan and adds to the plan.
// Rules apply in order until one settles the decision.
type rule struct {
	name  string
	apply func(*plan) outcome
}

// outcome reports whether the following rules still apply.
type outcome bool

const (
	goOn    outcome = false
	settled outcome = true
)

// summaryName names the step that summarizes the pods, after the rules.
const summaryName = "the phase summarizes the pods"

// Decide returns what to do for a job.
func Decide(observed Observed) Decision {
	decision, _ := newPlan(newInput(observed)).decide()
	decision.delayPhases(&observed)
	return decision
}

// decide also names the step that changed the job's phase, "" if none did.
func (p *plan) decide() (decision Decision, cause string) {
	if IsLeftAlone(p.Job) {
		return p.decision, ""
	}
	rules, summarize := workerRules(), summarizeWorkers
	switch {
	case IsCoordinatorLed(p.Job):
		rules, summarize = coordinatorRules(), summarizeReplicas
	case p.isExcessive():
		rules = rulesOfExcess()
	}
	cause = p.apply(rules)
	if p.decision.DeleteJob || p.decision.isAdoption() {
		return p.decision, ""
	}
	before := p.status().Phase
	summarize(p)
	if p.status().Phase != before {
		cause = summaryName
	}
	p.reportProblems()
	p.deleteByForce()
	p.reportPlace()
	p.reportQueue()
	if !p.isExcessive() {
		p.reportGang()
	}
	p.reportInvalid()
	p.decision.Status.ObservedGeneration = p.Job.Generation
	return p.decision, cause
}

// apply applies the rules in order and names the last one that changed the phase.
func (p *plan) apply(rules []rule) (cause string) {
	for _, rule := range rules {
		before := p.status().Phase
		result := rule.apply(p)
		if p.status().Phase != before {
			cause = rule.name
		}
		if result == settled {
			break
		}
	}
	return cause
}

// IsCoordinatorLed reports whether a job is coordinator-led, and not worker-led.
func IsCoordinatorLed(job *v2alpha1.DIJob) bool {
	return job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed
}

// IsLeftAlone reports whether the operator does nothing for a job: another controller
// manages it, or it is being deleted and the garbage collector deletes its objects.
func IsLeftAlone(job *v2alpha1.DIJob) bool {
	if !job.DeletionTimestamp.IsZero() {
		return true
	}
	return names.OtherManager(&job.Spec) != ""
}
