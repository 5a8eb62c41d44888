// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

// Phase is a summary of a job's state.
type Phase string

const (
	// JobPending is a job without pods.
	JobPending Phase = "Pending"
	// JobStarting is a job whose pods exist and are not all ready, or whose coordinator exists but does not run.
	JobStarting Phase = "Starting"
	// JobRestarting is a job that restarts after a failure.
	JobRestarting Phase = "Restarting"
	// JobRescheduling is a job that restarts for another placement, size or queue.
	JobRescheduling Phase = "Rescheduling"
	// JobRunning is a job whose pods are all ready.
	JobRunning Phase = "Running"
	// JobSucceeded is a job that has finished successfully.
	JobSucceeded Phase = "Succeeded"
	// JobFailed is a job that has finished with a failure.
	JobFailed Phase = "Failed"
	// JobUnknown is a job whose state cannot be determined.
	JobUnknown Phase = "Unknown"
)

// Condition types beside the phases.
const (
	// ConditionCreated is set while the coordinator of a coordinator-led job exists but does not run yet. It is
	// v1alpha1's name for this phase, kept in both versions.
	ConditionCreated = "Created"
	// ConditionAggregatorConfigMissing is set while a learner of several GPUs waits for an AggregatorConfig.
	ConditionAggregatorConfigMissing = "AggregatorConfigMissing"
	// ConditionSuspended is set while the job is suspended.
	ConditionSuspended = "Suspended"
	// ConditionTerminating is set once the job is being deleted, and finalizers of others or of the history hold it.
	ConditionTerminating = "Terminating"
	// ConditionAllocated reports whether the allocator has placed the job.
	ConditionAllocated = "Allocated"
	// ConditionAutoscaling reports whether the ratio rule decides about the size of the job.
	ConditionAutoscaling = "Autoscaling"
	// ConditionGangScheduled reports whether the job's gang is scheduled.
	ConditionGangScheduled = "GangScheduled"
	// ConditionAdmitted reports whether Kueue has admitted the job from its queue.
	ConditionAdmitted = "Admitted"
	// ConditionNameConflict is set while a foreign object has the name of an object that the job needs.
	ConditionNameConflict = "NameConflict"
	// ConditionReplicaFailure is set while the API server refuses a pod or service that the job needs, because of a
	// quota, a policy or a missing priority class, for example.
	ConditionReplicaFailure = "ReplicaFailure"
	// ConditionReplicasStalled is set while pods of the job make no progress: a pod cannot be scheduled, an image
	// cannot be pulled, a container crashes repeatedly.
	ConditionReplicasStalled = "ReplicasStalled"
	// ConditionReplicasNotReady is set while pods of the job are neither ready nor finished for a minute, and are not
	// stalled: behind a scheduling gate, for example. Nothing depends on it.
	ConditionReplicasNotReady = "ReplicasNotReady"
	// ConditionResizing is set while a running job is resized: a desired replica is not ready yet, or an excess one
	// still exists.
	ConditionResizing = "Resizing"
	// ConditionDraining is set while replicas that hold state wait for the acknowledgement of their removal.
	ConditionDraining = "Draining"
	// ConditionDrainFailed is set while replicas that hold state stay because their removal was not acknowledged.
	ConditionDrainFailed = "DrainFailed"
	// ConditionResourcesAdjusted is set once the operator has given replicas other resources than their template's.
	// Its reason is that of the override; its message has the last changes.
	ConditionResourcesAdjusted = "ResourcesAdjusted"
	// ConditionReplicasDisrupted is set while disrupted pods of the job are recreated. Disruptions count no failure.
	ConditionReplicasDisrupted = "ReplicasDisrupted"
	// ConditionPodsForceDeleted names the pods that were force-deleted because their nodes do not answer. It stays
	// set, because their containers may still run there.
	ConditionPodsForceDeleted = "PodsForceDeleted"
	// ConditionPodsChanged is set while pods run whose fields admission changed at their creation, so that they may not
	// work as the job requires.
	ConditionPodsChanged = "PodsChanged"
	// ConditionInvalidSpec is set while the stored spec cannot be used, because a template does not decode, for example.
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
	// ReasonDeadlineExceeded is the failure of a job that was active for longer than its deadline.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonHeldByFinalizer is the reason of the condition Terminating.
	ReasonHeldByFinalizer = "HeldByFinalizer"
	// ReasonWaitsForHistory is the reason of the condition Terminating of a job that only the history holds.
	ReasonWaitsForHistory = "WaitsForHistory"
	// ReasonNotRecorded is the event of a deleted job that was let go before the history had recorded its end.
	ReasonNotRecorded = "NotRecorded"
	// ReasonResumed means that a suspended job was resumed.
	ReasonResumed = "Resumed"

	// ReasonResized is the reason of the condition Resizing, and of the event that names the new sizes of the tasks
	// and the requester.
	ReasonResized = "Resized"
	// ReasonDrained is the event of replicas that left after every member had acknowledged that.
	ReasonDrained = "Drained"
	// ReasonDrainTimedOut is the event of replicas that were removed although not every member had acknowledged that.
	ReasonDrainTimedOut = "DrainTimedOut"
	// ReasonOutOfMemory is the reason of the condition ResourcesAdjusted for more memory, and the event of a replica
	// that was out of memory, and must do with what it has.
	ReasonOutOfMemory = "OutOfMemory"
	// ReasonPodResized is the event of a pod that is resized in place.
	ReasonPodResized = "PodResized"
	// ReasonPodResizeRefused is the event of a pod that the API server refuses to resize in place.
	ReasonPodResizeRefused = "PodResizeRefused"
	// ReasonReplicaLost is the event of a lost replica of a coordinator-led job, which is replaced.
	ReasonReplicaLost = "ReplicaLost"
	// ReasonReplicaRestarting is the event of a failed replica of a worker-led job that restarts alone.
	ReasonReplicaRestarting = "ReplicaRestarting"
	// ReasonOOMKilled is the kubelet's reason for a container that used more memory than its limit.
	ReasonOOMKilled = "OOMKilled"
)

// Reasons of the condition ReplicasStalled and its events, the most serious first.
const (
	// ReasonCrashLoop means that a container exits soon after each start.
	ReasonCrashLoop = "CrashLoop"
	// ReasonContainerStart means that the node cannot start a container, such as one whose command does not exist.
	ReasonContainerStart = "ContainerStart"
	// ReasonContainerConfig means that a source of a container's configuration, such as a Secret, is missing or wrong.
	ReasonContainerConfig = "ContainerConfig"
	// ReasonImagePull means that an image cannot be pulled.
	ReasonImagePull = "ImagePull"
	// ReasonMainContainerExited means that the main container has exited while another container of the template runs.
	ReasonMainContainerExited = "MainContainerExited"
	// ReasonTerminating means that a pod is still terminating after its grace period.
	ReasonTerminating = "Terminating"
	// ReasonPodSetup means that the node does not set up the pod's volumes and network.
	ReasonPodSetup = "PodSetup"
	// ReasonUnschedulable means that the scheduler finds no node for a pod.
	ReasonUnschedulable = "Unschedulable"
)

// Reasons of the condition ReplicasNotReady.
const (
	// ReasonNotReady means that a pod starts slowly, terminates slowly, or fails its startup or readiness probe.
	ReasonNotReady = "NotReady"
	// ReasonSchedulingGated means that a pod has scheduling gates, which another program or a user removes.
	ReasonSchedulingGated = "SchedulingGated"
)

// ReasonChangedByAdmission is the reason of the condition PodsChanged and its event.
const ReasonChangedByAdmission = "ChangedByAdmission"

// Reasons of the condition ReplicasDisrupted and its events.
const (
	// ReasonRejected means that the kubelet of the scheduled node rejected a pod.
	ReasonRejected = "Rejected"
	// ReasonEvicted means that a pod was evicted from its node.
	ReasonEvicted = "Evicted"
	// ReasonPreempted means that the scheduler preempted a pod for one of a higher priority.
	ReasonPreempted = "Preempted"
	// ReasonNodeLost means that a pod's node is shut down, gone or unreachable.
	ReasonNodeLost = "NodeLost"
	// ReasonGracefulExit means that a replica of a preemptible job saved its state and exited with 143.
	ReasonGracefulExit = "GracefulExit"
	// ReasonPeerStalled means that a replica failed while another one could not start.
	ReasonPeerStalled = "PeerStalled"
)

// Reasons of the condition Admitted, beside its own name.
const (
	// ReasonWaitingInQueue means that the job waits in a Kueue queue.
	ReasonWaitingInQueue = "WaitingInQueue"
	// ReasonNotManagedByKueue means that Kueue has not gated the pods that name its queue.
	ReasonNotManagedByKueue = "NotManagedByKueue"
	// ReasonNoKueue means that the job names a queue in a cluster without Kueue.
	ReasonNoKueue = "NoKueue"
)

// ReasonProbeFailed is the reason of a pod that the kubelet killed because its liveness or startup probe failed.
const ReasonProbeFailed = "ProbeFailed"

// ReasonError is the kubelet's reason for a container that exited with a code other than 0.
const ReasonError = "Error"

// Reasons of the condition Allocated and its events. A job whose spec cannot be placed has ConditionInvalidSpec, one
// that is suspended ConditionSuspended, and one that the quotas of its namespace do not admit ReasonQuotaExceeded.
const (
	// ReasonPlaced means that all desired replicas have a node.
	ReasonPlaced = "Placed"
	// ReasonPartiallyPlaced means that fewer replicas than desired have a node, but at least the minimum at the time of
	// placement.
	ReasonPartiallyPlaced = "PartiallyPlaced"
	// ReasonGaveBack is the reason of an Event: a preemptible job lost replicas that its tenant had borrowed.
	ReasonGaveBack = "GaveBack"
	// ReasonInsufficientCapacity means that the nodes cannot hold the job now.
	ReasonInsufficientCapacity = "InsufficientCapacity"
	// ReasonNoAllocator means that the operator runs without its allocator and no other program has placed the job.
	ReasonNoAllocator = "NoAllocator"
	// ReasonUnreadableReport means that the allocator ignores status.profilings because it cannot read them.
	ReasonUnreadableReport = "UnreadableReport"
)

// Reasons of the condition Autoscaling and its events.
const (
	// ReasonFollowing means that the producers follow the consumer.
	ReasonFollowing = "Following"
	// ReasonAdvising means that the coordinator resizes the job by the advice of the rule.
	ReasonAdvising = "Advising"
	// ReasonWaitingForReports means that producers and consumer do not report what the rule needs.
	ReasonWaitingForReports = "WaitingForReports"
	// ReasonRatioOutOfRange means that the consumer starves, or the producers are blocked, at every size inside the bounds.
	ReasonRatioOutOfRange = "RatioOutOfRange"
	// ReasonStalenessBoundLimitsThroughput means that the bound on staleness leaves too few samples between producers and
	// consumer.
	ReasonStalenessBoundLimitsThroughput = "StalenessBoundLimitsThroughput"
	// ReasonOtherMaster means that something else decides about the size of the job.
	ReasonOtherMaster = "OtherMaster"
	// ReasonInvalidRule means that the rule does not fit the tasks of the job.
	ReasonInvalidRule = "InvalidRule"
	// ReasonResizeRefused means that the API server refuses the resize.
	ReasonResizeRefused = "ResizeRefused"
	// ReasonPlanned is the event of a ScalePlan that an optimizer made.
	ReasonPlanned = "Planned"
	// ReasonAutoscaled is the event of a resize.
	ReasonAutoscaled = "Autoscaled"
)

// Reasons of the conditions and events of a ScalePlan.
const (
	// ReasonPlanAccepted is the reason of a plan that the job executes next.
	ReasonPlanAccepted = "PlanAccepted"
	// ReasonPlanWaiting is the reason of a plan whose job does not exist yet, or is suspended.
	ReasonPlanWaiting = "PlanWaiting"
	// ReasonPlanExecuting is the reason of a plan that the job executes.
	ReasonPlanExecuting = "PlanExecuting"
	// ReasonPlanSucceeded is the reason of a plan that is complete.
	ReasonPlanSucceeded = "PlanSucceeded"
	// ReasonPlanFailed is the reason of a plan that was not complete in time.
	ReasonPlanFailed = "PlanFailed"
	// ReasonPlanSuperseded is the reason of a plan that a newer one replaced.
	ReasonPlanSuperseded = "PlanSuperseded"
	// ReasonPlanRefused is the reason of a plan that cannot be executed.
	ReasonPlanRefused = "PlanRefused"
)

// Reasons of the condition GangScheduled and its events. While the scheduler reports why the gang is not scheduled, the
// condition has the scheduler's reason.
const (
	// ReasonGangPlaced means that the minimum number of pods of the gang has a node.
	ReasonGangPlaced = "GangPlaced"
	// ReasonGangWaiting means that the scheduler has not reported yet why the gang is not scheduled.
	ReasonGangWaiting = "GangWaiting"
	// ReasonGangUnschedulable is the event of the first such report.
	ReasonGangUnschedulable = "GangUnschedulable"
	// ReasonGangReplaced means that the PodGroup is deleted and recreated, for another size or another scheduler.
	ReasonGangReplaced = "GangReplaced"
	// ReasonNoGangScheduler means that the cluster has no gang scheduler for the job.
	ReasonNoGangScheduler = "NoGangScheduler"
)

// Reasons of the condition ReplicaFailure; any other refusal has ReasonFailedCreate, ReasonFailedDelete or
// ReasonFailedUpdate.
const (
	// ReasonQuotaExceeded means that a ResourceQuota is exhausted.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonPodSecurityViolation means that the namespace's Pod Security Standard does not allow the pod.
	ReasonPodSecurityViolation = "PodSecurityViolation"
	// ReasonLimitRangeViolation means that a LimitRange of the namespace does not allow the pod's requests or limits.
	ReasonLimitRangeViolation = "LimitRangeViolation"
	// ReasonResourcesMissing means that a ResourceQuota counts requests or limits that the pod does not set.
	ReasonResourcesMissing = "ResourcesMissing"
)

// Reasons of events about pods and services.
const (
	ReasonSuccessfulCreate = "SuccessfulCreate"
	ReasonFailedCreate     = "FailedCreate"
	ReasonSuccessfulDelete = "SuccessfulDelete"
	ReasonFailedDelete     = "FailedDelete"
	// ReasonFailedUpdate means that the API server refuses an update.
	ReasonFailedUpdate = "FailedUpdate"
	// ReasonRestored means that labels, annotations or the owner of a pod, or a service, were put back, which others changed.
	ReasonRestored = "Restored"
	// ReasonAdopted means that pods and services of an earlier release were adopted.
	ReasonAdopted = "Adopted"
	// ReasonLeftBehind means that objects were deleted that an earlier job of the name controlled, and that the garbage
	// collector had left.
	ReasonLeftBehind = "LeftBehind"
)

// Reasons of events about the operator itself, on the CustomResourceDefinition of DIJobs.
const (
	// ReasonAdmissionProbeFailed means that a dry-run create of a job, at the version that is not stored, was refused.
	ReasonAdmissionProbeFailed = "AdmissionProbeFailed"
	// ReasonAdmissionProbeSucceeded means that it is admitted again.
	ReasonAdmissionProbeSucceeded = "AdmissionProbeSucceeded"
	// ReasonTakingOver means that the takeover of an earlier release is in progress. The message names the step.
	ReasonTakingOver = "TakingOver"
	// ReasonTakenOver means that the takeover is complete: the earlier release is stopped.
	ReasonTakenOver = "TakenOver"
	// ReasonTakeoverStalled means that the takeover made no progress for a minute. The message names what it waits for.
	ReasonTakeoverStalled = "TakeoverStalled"
	// ReasonStorageSwitched means that the storage version was changed.
	ReasonStorageSwitched = "StorageSwitched"
	// ReasonStorageMigrated means that all objects are stored in that version.
	ReasonStorageMigrated = "StorageMigrated"
	// ReasonStorageMigrationBlocked means that the migration waits for a user to act.
	ReasonStorageMigrationBlocked = "StorageMigrationBlocked"
	// ReasonStorageMigrationFailed means that some objects could not be written. They are retried.
	ReasonStorageMigrationFailed = "StorageMigrationFailed"
	// ReasonVersionServed and ReasonVersionNotServed mean that a version is served, or no longer served.
	ReasonVersionServed    = "VersionServed"
	ReasonVersionNotServed = "VersionNotServed"
	// ReasonConversionRestored means that the webhook configuration was overwritten and has been restored.
	ReasonConversionRestored = "ConversionRestored"
)

// AggregatorTaskStatus is the key of aggregators in status.taskStatus.
const AggregatorTaskStatus = "aggregator"
