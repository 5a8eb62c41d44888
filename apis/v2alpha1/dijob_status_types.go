// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DIJobStatus is the last observation of a DIJob.
type DIJobStatus struct {
	// phase summarizes the conditions for people; written by the operator.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// summary is what tables show of this status; written by the operator.
	// +optional
	Summary *StatusSummary `json:"summary,omitempty"`

	// replicas is the total number of desired replicas. The operator sets it
	// from the spec; di-server and users may change it to resize the job.
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of ready replicas; written by the operator.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// restarts counts the restarts of the job after failures; written by the
	// operator.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`

	// replicaRestarts counts the restarts of single replicas since the last
	// restart of the job, by pod; written by the operator.
	// +kubebuilder:validation:MaxProperties=100000
	// +optional
	ReplicaRestarts map[string]int32 `json:"replicaRestarts,omitempty"`

	// reschedules counts the restarts of the job for another placement, size or
	// queue; written by the operator.
	// +optional
	Reschedules int32 `json:"reschedules,omitempty"`

	// taskStatus counts the pods of each task by pod phase; written by the
	// operator. A learner of several GPUs counts under the key aggregator.
	// +kubebuilder:validation:MaxProperties=100000
	// +optional
	TaskStatus map[string]TaskStatus `json:"taskStatus,omitempty"`

	// allocation is the node of each rank; written by the allocator.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100000
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Allocation []string `json:"allocation,omitempty"`

	// allocationUsage is what a preemptible job has used and what its restarts
	// cost; written by the allocator.
	// +optional
	AllocationUsage *AllocationUsage `json:"allocationUsage,omitempty"`

	// profilings is the job's last report; written by di-server. It is atomic,
	// because managedFields would otherwise repeat each of its keys.
	// +structType=atomic
	// +optional
	Profilings *RawObject `json:"profilings,omitempty"`

	// rates is what the job's workers reported, by role and di-server; written by
	// di-server.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Rates []RoleRates `json:"rates,omitempty"`

	// requests are the last requests to resize the job and their answers;
	// di-server writes them, and recognizes repeated requests by them.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Requests []RecordedRequest `json:"requests,omitempty"`

	// conditions are the observations that phase summarizes; written by the operator.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Conditions []DIJobCondition `json:"conditions,omitempty"`

	// completionTimestamp is when the job finished; written by the operator.
	// +optional
	CompletionTimestamp *metav1.Time `json:"completionTimestamp,omitempty"`

	// observedGeneration is the generation of the spec that this status describes;
	// written by the operator.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// completedRanks are the ranks that have succeeded, as ranges ("0-3,7");
	// written by the operator.
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	CompletedRanks string `json:"completedRanks,omitempty"`

	// lastFailure is the last counted failure; written by the operator.
	// +optional
	LastFailure *LastFailure `json:"lastFailure,omitempty"`

	// scaling records the sizes that the operator last acted on; written by the
	// operator.
	// +optional
	Scaling *ScalingStatus `json:"scaling,omitempty"`

	// membershipAcks are the acknowledgements of scaling.membership; written by
	// di-server.
	// +optional
	MembershipAcks *MembershipAcks `json:"membershipAcks,omitempty"`

	// autoscaling is what the autoscaler last decided; written by the autoscaler.
	// +optional
	Autoscaling *AutoscalingStatus `json:"autoscaling,omitempty"`

	// elasticReplicas is the observed number of replicas of the elastic task;
	// written by the operator.
	// +optional
	ElasticReplicas int32 `json:"elasticReplicas,omitempty"`

	// selector selects the pods of the elastic task; written by the operator.
	// +optional
	Selector string `json:"selector,omitempty"`
}

// StatusSummary is what tables show of a status beside the phase.
type StatusSummary struct {
	// ready is how many of the desired replicas are ready, such as 3/5; empty for a
	// finished job.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Ready string `json:"ready,omitempty"`

	// reason is in one word why the job does not run as desired, such as Suspended,
	// InsufficientCapacity or ImagePull, or why it failed. Empty if neither applies.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Reason string `json:"reason,omitempty"`

	// restarts is the number of restarts of the job, also if it is 0.
	// +optional
	Restarts int32 `json:"restarts"`

	// duration is how long the finished job was active, such as 3h12m. Time that it
	// was suspended or waited in a queue before does not count.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Duration string `json:"duration,omitempty"`
}

// AllocationUsage is what a preemptible job has used, and what its restarts cost.
// A new leader continues with it. Durations are whole milliseconds, because
// floating-point numbers do not survive all clients.
type AllocationUsage struct {
	// policy is the name of the policy that decided the allocation.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Policy string `json:"policy,omitempty"`

	// accountedAt is the time up to which the usage is accounted.
	// +optional
	AccountedAt *metav1.MicroTime `json:"accountedAt,omitempty"`

	// placedAt is when the allocation last changed.
	// +optional
	PlacedAt *metav1.MicroTime `json:"placedAt,omitempty"`

	// workMilliseconds is the work done, in milliseconds of one replica.
	// +kubebuilder:validation:Minimum=0
	// +optional
	WorkMilliseconds int64 `json:"workMilliseconds,omitempty"`

	// usefulThousandths is the useful work done, in thousandths of a sample.
	// +kubebuilder:validation:Minimum=0
	// +optional
	UsefulThousandths int64 `json:"usefulThousandths,omitempty"`

	// expectedThousandths is the useful work of the whole job by its first reports
	// of progress, in thousandths of a sample.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ExpectedThousandths int64 `json:"expectedThousandths,omitempty"`

	// attainedMilliseconds is the capacity-time that the job had: milliseconds of
	// one unit, such as a GPU, of the scarcest resource.
	// +kubebuilder:validation:Minimum=0
	// +optional
	AttainedMilliseconds int64 `json:"attainedMilliseconds,omitempty"`

	// trainedMilliseconds is how long the job has trained, without its restarts.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TrainedMilliseconds int64 `json:"trainedMilliseconds,omitempty"`

	// restarts counts the restarts by changes of the allocation.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Restarts int32 `json:"restarts,omitempty"`

	// restartMilliseconds is the average measured duration of a restart.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RestartMilliseconds int64 `json:"restartMilliseconds,omitempty"`

	// remainingRestartMilliseconds is the part of a restart that was not over at
	// accountedAt.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RemainingRestartMilliseconds int64 `json:"remainingRestartMilliseconds,omitempty"`

	// restarting is set while the duration of the last restart is measured.
	// +optional
	Restarting bool `json:"restarting,omitempty"`

	// counted is set when the history of the finished job's group includes it.
	// +optional
	Counted bool `json:"counted,omitempty"`
}

// TaskStatus counts pods by pod phase.
//
// +kubebuilder:validation:MaxProperties=64
type TaskStatus map[corev1.PodPhase]int32

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

// LastFailure describes the last counted failure.
type LastFailure struct {
	// pod is the name of the failed pod.
	// +optional
	Pod string `json:"pod,omitempty"`

	// exitCode is the exit code of its main container.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// reason is the machine-readable reason, such as OOMKilled.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message describes the same for people.
	// +optional
	Message string `json:"message,omitempty"`

	// time is when the failure was observed.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// ScalingStatus records the sizes that the operator last acted on.
type ScalingStatus struct {
	// specReplicas are the counts of the spec that the operator last acted on, by task name.
	// +kubebuilder:validation:MaxProperties=100000
	// +optional
	SpecReplicas map[string]int32 `json:"specReplicas,omitempty"`

	// lastReplicas is the total that the operator last wrote to status.replicas;
	// another client wrote any other value there.
	// +optional
	LastReplicas int32 `json:"lastReplicas,omitempty"`

	// ranks are those of each task's replicas, in the order of their indexes and as ranges ("1-2,4"). Empty
	// for a job of one task whose ranks equal its indexes.
	// +kubebuilder:validation:MaxProperties=100000
	// +optional
	Ranks map[string]string `json:"ranks,omitempty"`

	// indexes are the indexes of the replicas of each task that do not just start at 0
	// without gaps, as ranges ("0,2-4").
	// +kubebuilder:validation:MaxProperties=100000
	// +optional
	Indexes map[string]string `json:"indexes,omitempty"`

	// lastAllocation is a digest of the allocation that the operator last acted
	// on; empty for none.
	// +optional
	LastAllocation string `json:"lastAllocation,omitempty"`

	// resources are the resources that differ from the templates.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +optional
	Resources []ResourceOverride `json:"resources,omitempty"`

	// plan is the ScalePlan that the operator executes, or executed last.
	// +optional
	Plan *PlanRecord `json:"plan,omitempty"`

	// membership lists the members of a job that has a task with drain. di-server
	// serves it to the job's pods.
	// +optional
	Membership *PublishedMembership `json:"membership,omitempty"`

	// growth lists the replicas that were added to a job that queues with Kueue as a group.
	// +optional
	Growth *QueuedGrowth `json:"growth,omitempty"`
}

// QueuedGrowth lists the replicas that were added to a job that queues with Kueue as a group, by rank.
type QueuedGrowth struct {
	// start is the name of the group of the pods that the job started with.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Start string `json:"start,omitempty"`

	// last is the number of the last group that was added.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Last int32 `json:"last,omitempty"`

	// groups are the groups of added replicas. Kueue admits each as a whole.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Groups []GrowthGroup `json:"groups,omitempty"`

	// alone are the ranks of added replicas that queue each by itself, as ranges ("4,6-8").
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Alone string `json:"alone,omitempty"`
}

// GrowthGroup is a group of replicas that were added to a job together.
type GrowthGroup struct {
	// number ends the name of the group.
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`

	// ranks are those of the group's replicas, as ranges ("4-7").
	// +kubebuilder:validation:MaxLength=1048576
	Ranks string `json:"ranks"`

	// created reports whether a pod of the group was observed.
	// +optional
	Created bool `json:"created,omitempty"`
}

// PublishedMembership lists the members of a job whose tasks hold state: its running
// replicas, by rank.
type PublishedMembership struct {
	// version counts the changes of the list.
	// +kubebuilder:validation:Minimum=0
	Version int64 `json:"version"`

	// publishedAt is when the version was published.
	// +optional
	PublishedAt *metav1.Time `json:"publishedAt,omitempty"`

	// active are the ranks of all members, as ranges ("0-3,7").
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Active string `json:"active,omitempty"`

	// pods identify the pods of the active ranks, in their order: six characters of a
	// digest of each pod's UID. A later pod of the same rank is another member.
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Pods string `json:"pods,omitempty"`

	// podsVersion is the version to which pods belong. Those of another version,
	// or none, are of an earlier operator, which lists members by rank alone.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PodsVersion int64 `json:"podsVersion,omitempty"`

	// leaving are the ranks of the members that will be removed or replaced once
	// every member has acknowledged that.
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Leaving string `json:"leaving,omitempty"`

	// leavingSince is when the last of them began to leave.
	// +optional
	LeavingSince *metav1.Time `json:"leavingSince,omitempty"`

	// acknowledge is the version that every member must acknowledge, or a later one;
	// 0 if none must be.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Acknowledge int64 `json:"acknowledge,omitempty"`

	// kept are the ranks of the members that stay because their removal failed.
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Kept string `json:"kept,omitempty"`

	// keptFor identifies the change that failed. Another change is tried.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	KeptFor string `json:"keptFor,omitempty"`
}

// MembershipAcks are the acknowledgements of a job's membership.
type MembershipAcks struct {
	// version is the version that is acknowledged.
	// +kubebuilder:validation:Minimum=0
	Version int64 `json:"version"`

	// ranks are the ranks of the members that acknowledged it, as ranges ("0-3,7").
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Ranks string `json:"ranks,omitempty"`

	// refused are members that refuse it.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Refused []MembershipRefusal `json:"refused,omitempty"`
}

// MembershipRefusal is the refusal of a member.
type MembershipRefusal struct {
	// pod is the name of the member's pod.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// reason describes for people why it refuses.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`
}
