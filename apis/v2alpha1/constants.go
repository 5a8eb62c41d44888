// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

// Phase is a summary of a job's state.
type Phase string

const (
	// JobPending is a job of which nothing is created yet.
	JobPending Phase = "Pending"
	// JobStarting is a job whose pods exist and are not all ready, or whose coordinator exists and does not run.
	JobStarting Phase = "Starting"
	// JobRestarting is a job that is being restarted after a failure.
	JobRestarting Phase = "Restarting"
	// JobRescheduling is a job that is being placed anew.
	JobRescheduling Phase = "Rescheduling"
	// JobRunning is a job whose pods are all ready.
	JobRunning Phase = "Running"
	// JobSucceeded is a job that has finished well.
	JobSucceeded Phase = "Succeeded"
	// JobFailed is a job that has failed for good.
	JobFailed Phase = "Failed"
	// JobUnknown is a job whose state cannot be told.
	JobUnknown Phase = "Unknown"
)

// Condition types beside the phases.
const (
	// ConditionCreated says of a coordinator-led job that its coordinator exists and does not run yet: v1alpha1's
	// word, which its conditions keep in both versions.
	ConditionCreated = "Created"
	// ConditionAggregatorConfigMissing says that a learner of several GPUs waits for an AggregatorConfig.
	ConditionAggregatorConfigMissing = "AggregatorConfigMissing"
	// ConditionSuspended says that the job is suspended.
	ConditionSuspended = "Suspended"
	// ConditionAllocated says whether the allocator has placed the job.
	ConditionAllocated = "Allocated"
	// ConditionGangScheduled says whether the job's gang is placed.
	ConditionGangScheduled = "GangScheduled"
	// ConditionAdmitted says whether Kueue has admitted the job from its queue.
	ConditionAdmitted = "Admitted"
	// ConditionNameConflict says that an object that the job needs exists and belongs to somebody else.
	ConditionNameConflict = "NameConflict"
	// ConditionReplicaFailure says that the API server refuses a pod or service that the job needs, such as one over
	// a quota, against a policy or of a missing priority class.
	ConditionReplicaFailure = "ReplicaFailure"
	// ConditionReplicasStalled says that pods of the job do not get on: one cannot be scheduled, an image cannot be
	// pulled, a container crashes again and again.
	ConditionReplicasStalled = "ReplicasStalled"
	// ConditionResizing says that a job was resized which goes on meanwhile, and that not all that it is to have is ready
	// yet, or something is left that it is not to have.
	ConditionResizing = "Resizing"
	// ConditionReplicasInterrupted says that pods of the job ended by what befell them, and are made again uncounted.
	ConditionReplicasInterrupted = "ReplicasInterrupted"
	// ConditionPodsForceDeleted says which pods were deleted by force, as they did not go from nodes that do not
	// answer. It stays, as what they ran may go on there.
	ConditionPodsForceDeleted = "PodsForceDeleted"
	// ConditionInvalidSpec says that the stored spec cannot be acted on, such as a template that does not decode.
	ConditionInvalidSpec = "InvalidSpec"
)

// Reasons of worker-led jobs, on conditions and events.
const (
	ReasonJobPending      = "JobPending"
	ReasonJobStarting     = "JobStarting"
	ReasonJobRunning      = "JobRunning"
	ReasonJobRestarting   = "JobRestarting"
	ReasonJobRescheduling = "JobRescheduling"
	ReasonJobFailed       = "JobFailed"
	ReasonJobSucceeded    = "JobSucceeded"
)

// Reasons of coordinator-led jobs, on conditions and events.
const (
	ReasonDIJobCreated   = "DIJobCreated"
	ReasonDIJobRunning   = "DIJobRunning"
	ReasonDIJobFailed    = "DIJobFailed"
	ReasonDIJobSucceeded = "DIJobSucceeded"
)

// Reasons that both lifecycles share.
const (
	// ReasonDeadlineExceeded is the failure of a job that was active for too long.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonResumed is that a suspended job goes on.
	ReasonResumed = "Resumed"

	// ReasonResized is the reason of the condition Resizing and of the event that tasks of a worker-led job are
	// to have more replicas than before, or fewer, and who asked for it.
	ReasonResized = "Resized"
	// ReasonReplicaLost is the reason of the event that a replica of a
	// coordinator-led job was lost and is replaced.
	ReasonReplicaLost = "ReplicaLost"
	// ReasonReplicaRestarting is the reason of the event that a failed replica
	// of a worker-led job is made again alone.
	ReasonReplicaRestarting = "ReplicaRestarting"
	// ReasonOOMKilled is the kubelet's word for a container that used more
	// memory than its limit.
	ReasonOOMKilled = "OOMKilled"
)

// Reasons of the condition ReplicasStalled and its events, the most serious first.
const (
	// ReasonCrashLoop is that a container ends soon after each start.
	ReasonCrashLoop = "CrashLoop"
	// ReasonContainerStart is that the node cannot start a container, such as one whose command does not exist.
	ReasonContainerStart = "ContainerStart"
	// ReasonContainerConfig is that what a container is configured from is missing or wrong, such as a Secret.
	ReasonContainerConfig = "ContainerConfig"
	// ReasonImagePull is that an image cannot be had.
	ReasonImagePull = "ImagePull"
	// ReasonMainEnded is that a pod's main container has ended, and another one of its template goes on.
	ReasonMainEnded = "MainEnded"
	// ReasonTerminating is that a pod which is being deleted does not go.
	ReasonTerminating = "Terminating"
	// ReasonPodSetup is that the node does not get the pod's volumes and network ready.
	ReasonPodSetup = "PodSetup"
	// ReasonUnschedulable is that no node is found for a pod.
	ReasonUnschedulable = "Unschedulable"
)

// Reasons of the condition ReplicasInterrupted and its events.
const (
	// ReasonRejected is that the node that a pod was scheduled to did not take it.
	ReasonRejected = "Rejected"
	// ReasonEvicted is that a pod was driven from its node.
	ReasonEvicted = "Evicted"
	// ReasonPreempted is that a pod made room for one of a higher priority.
	ReasonPreempted = "Preempted"
	// ReasonNodeLost is that a pod's node is shut down, gone or out of sight; a pod out of sight has failed.
	ReasonNodeLost = "NodeLost"
	// ReasonLeft is that a replica of a preemptible job saved its work and left.
	ReasonLeft = "Left"
)

// Reasons of the condition Admitted, beside its own name.
const (
	// ReasonWaitingInQueue is that the job waits in a queue of Kueue's.
	ReasonWaitingInQueue = "WaitingInQueue"
	// ReasonNotTakenUp is that Kueue has not taken up the pods that bear a queue's name.
	ReasonNotTakenUp = "NotTakenUp"
)

// ReasonError is the kubelet's word for a container that ended with another exit code than 0.
const ReasonError = "Error"

// Reasons of the condition Allocated and its events. A job whose spec cannot be placed has ConditionInvalidSpec, one
// that is suspended ConditionSuspended.
const (
	// ReasonPlaced is that all wanted replicas have a node.
	ReasonPlaced = "Placed"
	// ReasonShrunk is that fewer replicas than are wanted have a node, though no fewer than must be, or had to be when
	// the job was placed.
	ReasonShrunk = "Shrunk"
	// ReasonNoRoom is that no nodes hold the job now.
	ReasonNoRoom = "NoRoom"
	// ReasonNoAllocator is the reason of a False condition that the operator itself places no jobs.
	ReasonNoAllocator = "NoAllocator"
)

// Reasons of the condition GangScheduled and its events; while its scheduler says why the gang is not placed, the reason
// of the condition is the scheduler's.
const (
	// ReasonGangPlaced is that as many pods have a node as are to be placed at once.
	ReasonGangPlaced = "GangPlaced"
	// ReasonGangWaiting is that the scheduler has not said yet why it has not placed the gang.
	ReasonGangWaiting = "GangWaiting"
	// ReasonGangUnschedulable is the reason of the event that the scheduler says for the first time why it has not.
	ReasonGangUnschedulable = "GangUnschedulable"
	// ReasonGangReplaced is that the gang's object makes room for another one, of another size or for another scheduler.
	ReasonGangReplaced = "GangReplaced"
	// ReasonNoGangScheduler is that there is no scheduler that the gang can be left to.
	ReasonNoGangScheduler = "NoGangScheduler"
)

// Reasons of the condition ReplicaFailure; any other refusal has ReasonFailedCreate, ReasonFailedDelete or
// ReasonFailedUpdate.
const (
	// ReasonQuotaExceeded is that a ResourceQuota leaves no room.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonPodSecurityViolation is that the namespace's Pod Security Standard does not allow the pod.
	ReasonPodSecurityViolation = "PodSecurityViolation"
)

// Reasons of events about pods and services.
const (
	ReasonSuccessfulCreate = "SuccessfulCreate"
	ReasonFailedCreate     = "FailedCreate"
	ReasonSuccessfulDelete = "SuccessfulDelete"
	ReasonFailedDelete     = "FailedDelete"
	// ReasonFailedUpdate is that the API server refuses to change what exists.
	ReasonFailedUpdate = "FailedUpdate"
	// ReasonAdopted is that pods and services of an earlier release were taken over.
	ReasonAdopted = "Adopted"
)

// Reasons of events about the operator itself, on the CustomResourceDefinition of DIJobs.
const (
	// ReasonJobsNotAdmitted is that a job which is created at the version that is not stored, without being stored, is
	// not admitted.
	ReasonJobsNotAdmitted = "JobsNotAdmitted"
	// ReasonJobsAdmitted is that it is admitted again.
	ReasonJobsAdmitted = "JobsAdmitted"
	// ReasonTakingOver is that an earlier release is being taken over: the message says which step it is at.
	ReasonTakingOver = "TakingOver"
	// ReasonTakenOver is that nothing of the earlier release acts any more.
	ReasonTakenOver = "TakenOver"
	// ReasonTakeoverWaits is that the takeover has not got on for a minute or longer: the message says what it waits for.
	ReasonTakeoverWaits = "TakeoverWaits"
	// ReasonStorageSwitched is that objects are stored in another version from now on.
	ReasonStorageSwitched = "StorageSwitched"
	// ReasonStorageMigrated is that all objects are stored in that version.
	ReasonStorageMigrated = "StorageMigrated"
	// ReasonStorageMigrationBlocked is that the migration waits for something that somebody has to do.
	ReasonStorageMigrationBlocked = "StorageMigrationBlocked"
	// ReasonStorageMigrationFailed is that objects could not be written, which are tried again.
	ReasonStorageMigrationFailed = "StorageMigrationFailed"
	// ReasonVersionServed and ReasonVersionNotServed are that a version is served from now on, or no more.
	ReasonVersionServed    = "VersionServed"
	ReasonVersionNotServed = "VersionNotServed"
	// ReasonConversionRestored is that somebody had reset what the API server needs
	// to call the webhooks, and that it is published again.
	ReasonConversionRestored = "ConversionRestored"
)

// AggregatorTaskStatus is the key of aggregators in status.taskStatus.
const AggregatorTaskStatus = "aggregator"
