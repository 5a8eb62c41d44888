// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Rules about immutable fields are at the root, because a transition rule runs
// there on every update, even if it adds or removes the field.

// The selectable fields differ from those of v1alpha1 on purpose: API servers
// refuse a CRD whose versions have the same ones and different schemas
// (https://github.com/kubernetes/kubernetes/issues/140689).

// DIJob is a distributed reinforcement-learning training job.
//
// +kubebuilder:validation:XValidation:rule="(has(self.spec) && has(self.spec.lifecycle) ? self.spec.lifecycle : 'WorkerLed') == (has(oldSelf.spec) && has(oldSelf.spec.lifecycle) ? oldSelf.spec.lifecycle : 'WorkerLed')",fieldPath=".spec.lifecycle",messageExpression="'is immutable: must stay ' + (has(oldSelf.spec) && has(oldSelf.spec.lifecycle) ? oldSelf.spec.lifecycle : 'WorkerLed') + ', not become ' + (has(self.spec) && has(self.spec.lifecycle) ? self.spec.lifecycle : 'WorkerLed') + '; make another job instead'"
// +kubebuilder:validation:XValidation:rule=`(has(self.spec) && has(self.spec.managedBy) ? self.spec.managedBy : "") == (has(oldSelf.spec) && has(oldSelf.spec.managedBy) ? oldSelf.spec.managedBy : "")`,fieldPath=".spec.managedBy",messageExpression=`'is immutable: must stay "' + (has(oldSelf.spec) && has(oldSelf.spec.managedBy) ? oldSelf.spec.managedBy : "") + '", not become "' + (has(self.spec) && has(self.spec.managedBy) ? self.spec.managedBy : "") + '"; make another job instead'`
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=dijob;dj
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.elastic.replicas,statuspath=.status.elasticReplicas,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.lifecycle`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.summary.ready`,description="ready of the desired replicas"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.summary.reason`,description="why the job does not run as desired, or why it failed"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.summary.restarts`,description="restarts after failures"
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.status.summary.duration`,description="how long the finished job was active"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ReadyReplicas",type=integer,priority=1,JSONPath=`.status.readyReplicas`,description="replicas that are ready"
// +kubebuilder:printcolumn:name="Replicas",type=integer,priority=1,JSONPath=`.status.replicas`,description="replicas that exist"
// +kubebuilder:printcolumn:name="Reschedules",type=integer,priority=1,JSONPath=`.status.reschedules`,description="restarts for another placement, size or queue"
// +kubebuilder:printcolumn:name="Coordinator",type=integer,priority=1,JSONPath=`.status.taskStatus.coordinator.Running`,description="running pods of task coordinator"
// +kubebuilder:printcolumn:name="Collectors",type=integer,priority=1,JSONPath=`.status.taskStatus.collector.Running`,description="running pods of task collector"
// +kubebuilder:printcolumn:name="Learners",type=integer,priority=1,JSONPath=`.status.taskStatus.learner.Running`,description="running pods of task learner"
// +kubebuilder:printcolumn:name="Aggregators",type=integer,priority=1,JSONPath=`.status.taskStatus.aggregator.Running`,description="running pods of task aggregator"
// +kubebuilder:printcolumn:name="Evaluators",type=integer,priority=1,JSONPath=`.status.taskStatus.evaluator.Running`,description="running pods of task evaluator"
type DIJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the job.
	// +optional
	Spec DIJobSpec `json:"spec,omitzero"`
	// status is what the operator last observed of the job.
	// +optional
	Status DIJobStatus `json:"status,omitzero"`
}

// DIJobList is a list of DIJobs.
//
// +kubebuilder:object:root=true
type DIJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DIJob `json:"items"`
}

// The count of the elastic task must stay within its bounds when it changes, in
// every request, including those to the scale subresource. An unchanged count
// passes, so that bounds may move while another client scales. So does that of a
// preemptible job, whose size the allocator decides.

// DIJobSpec is the desired state of a DIJob.
//
// +kubebuilder:validation:XValidation:rule="!has(self.lifecycle) || self.lifecycle != 'CoordinatorLed' || !has(self.preemptible) || !self.preemptible",fieldPath=".preemptible",reason=FieldValueForbidden,message="not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.lifecycle) || self.lifecycle != 'CoordinatorLed' || !has(self.elastic)",fieldPath=".elastic",reason=FieldValueForbidden,message="not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.lifecycle) || self.lifecycle != 'CoordinatorLed' || !has(self.failurePolicy)",fieldPath=".failurePolicy",reason=FieldValueForbidden,message="not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.lifecycle) || self.lifecycle != 'CoordinatorLed' || !has(self.successPolicy)",fieldPath=".successPolicy",reason=FieldValueForbidden,message="not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.lifecycle) || self.lifecycle != 'CoordinatorLed' || !has(self.scheduling) || !has(self.scheduling.gang)",fieldPath=".scheduling.gang",reason=FieldValueForbidden,message="not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.lifecycle) || self.lifecycle != 'CoordinatorLed' || !has(self.clusterSpec) || self.clusterSpec.size() == 0",fieldPath=".clusterSpec",reason=FieldValueForbidden,message="not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.mpi) || (has(self.clusterSpec) && self.clusterSpec.exists(framework, framework == 'MPI'))",fieldPath=".mpi",reason=FieldValueForbidden,message="only for a job whose clusterSpec lists MPI: add MPI to it, or remove mpi"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscale) || !has(self.autoscale.ratio) || !has(self.preemptible) || !self.preemptible || (has(self.elastic) && has(self.elastic.onResize) && self.elastic.onResize == 'Continue')",fieldPath=".autoscale.ratio",reason=FieldValueForbidden,message="a preemptible job with a ratio rule needs elastic.onResize: Continue, or else each resize restarts it"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscale) || !has(self.autoscale.ratio) || !has(self.lifecycle) || self.lifecycle != 'CoordinatorLed' || has(self.autoscale.ratio.driver)",fieldPath=".autoscale.ratio.driver",reason=FieldValueRequired,message="must be Operator or Coordinator for a job of lifecycle CoordinatorLed: either the operator changes the number of its collectors, or its coordinator does"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscale) || !has(self.autoscale.ratio) || !has(self.autoscale.ratio.driver) || self.autoscale.ratio.driver != 'Coordinator' || (has(self.lifecycle) && self.lifecycle == 'CoordinatorLed')",fieldPath=".autoscale.ratio.driver",reason=FieldValueForbidden,message="must be Operator, not Coordinator: only a job of lifecycle CoordinatorLed has a coordinator"
// +kubebuilder:validation:XValidation:rule="!has(self.aggregatorConfig) || (has(self.lifecycle) && self.lifecycle == 'CoordinatorLed')",fieldPath=".aggregatorConfig",reason=FieldValueForbidden,message="only for a job of lifecycle CoordinatorLed: no other has aggregators"
// +kubebuilder:validation:XValidation:rule="!has(self.elastic) || !has(self.elastic.replicas) || !has(self.elastic.minReplicas) || self.elastic.replicas >= self.elastic.minReplicas || (has(self.preemptible) && self.preemptible) || oldSelf.?elastic.?replicas.orValue(-1) == self.elastic.replicas",optionalOldSelf=true,fieldPath=".elastic.replicas",messageExpression="'must be at least minReplicas, which is %d, as must the replicas of the task that it counts; not %d'.format([self.elastic.minReplicas, self.elastic.replicas])"
// +kubebuilder:validation:XValidation:rule="!has(self.elastic) || !has(self.elastic.replicas) || !has(self.elastic.maxReplicas) || self.elastic.replicas <= self.elastic.maxReplicas || (has(self.preemptible) && self.preemptible) || oldSelf.?elastic.?replicas.orValue(-1) == self.elastic.replicas",optionalOldSelf=true,fieldPath=".elastic.replicas",messageExpression="'must be at most maxReplicas, which is %d, as must the replicas of the task that it counts; not %d'.format([self.elastic.maxReplicas, self.elastic.replicas])"
type DIJobSpec struct {
	// lifecycle decides what requests the job's replicas: the spec (WorkerLed,
	// default), or the job's coordinator through di-server (CoordinatorLed).
	// Immutable.
	// +optional
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`

	// group is a free name that several jobs may share.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Group string `json:"group,omitempty"`

	// priority is the coarse priority of the job, normal (default) or high.
	// +optional
	Priority Priority `json:"priority,omitempty"`

	// priorityClassName is the PriorityClass of the job's pods; it overrides
	// priority. A job written in v1alpha1 may have any text here.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// cleanPodPolicy decides which pods are deleted when the job has finished:
	// Running (default), All or None.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	CleanPodPolicy CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// preemptible lets the allocator decide the placement and size of the job.
	// +optional
	Preemptible bool `json:"preemptible,omitempty"`

	// backoffLimit is the maximum number of restarts after failures; one more
	// failure fails the job. 3 by default, -1 for no limit.
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// volumes are core/v1 Volumes added to every pod of the job.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Volumes []RawObject `json:"volumes,omitempty"`

	// tasks are the parts of the job. A coordinator-led job has one coordinator
	// task, and at most one collector and one learner task. Any other has at most
	// one learner, one collector and one evaluator task.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Tasks []Task `json:"tasks,omitempty"`

	// elastic names the task that may be resized, and its bounds.
	// +optional
	Elastic *Elastic `json:"elastic,omitempty"`

	// autoscale lets the operator change the size and resources of the job.
	// +optional
	Autoscale *Autoscale `json:"autoscale,omitempty"`

	// suspend stops the job: its pods are deleted until it is false again.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// activeDeadlineSeconds is how long the job may be active, in seconds; after
	// that it fails.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is how long the finished job is kept, in seconds.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// failurePolicy decides the effect of a failed replica.
	// +optional
	FailurePolicy *FailurePolicy `json:"failurePolicy,omitempty"`

	// successPolicy decides when the job has succeeded: when all its tasks have
	// succeeded (default), or only the named tasks.
	// +optional
	SuccessPolicy *SuccessPolicy `json:"successPolicy,omitempty"`

	// managedBy names the controller that runs this job, if it is not DI
	// Orchestrator itself. It is a domain-prefixed path such as
	// kueue.x-k8s.io/multikueue. Immutable.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[-A-Za-z0-9/._~%!$&'()*+,;=:]+$")`,messageExpression=`'must be a domain-prefixed path such as kueue.x-k8s.io/multikueue, not "' + self + '"'`
	// +optional
	ManagedBy *string `json:"managedBy,omitempty"`

	// scheduling selects the scheduler, queue and gang of the job's pods.
	// +optional
	Scheduling *Scheduling `json:"scheduling,omitempty"`

	// clusterSpec lists the frameworks whose cluster spec is set in the pods'
	// environment: TensorFlow, Torch, MPI. A resize then restarts the whole job,
	// and so does a framework that is added while it runs.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +optional
	ClusterSpec []ClusterSpec `json:"clusterSpec,omitempty"`

	// mpi configures the cluster spec MPI, for which clusterSpec must list MPI.
	// +optional
	MPI *MPI `json:"mpi,omitempty"`

	// disruption makes the operator keep a PodDisruptionBudget of the job's name,
	// which limits how many of its replicas evictions may take at once.
	// +optional
	Disruption *Disruption `json:"disruption,omitempty"`

	// aggregatorConfig names the AggregatorConfig of a coordinator-led job; the
	// default is the cluster's.
	// +optional
	AggregatorConfig *AggregatorConfigReference `json:"aggregatorConfig,omitempty"`
}

// Lifecycle decides what requests a job's replicas.
// +kubebuilder:validation:Enum=WorkerLed;CoordinatorLed
type Lifecycle string

const (
	// LifecycleWorkerLed is a job whose spec lists its replicas.
	LifecycleWorkerLed Lifecycle = "WorkerLed"
	// LifecycleCoordinatorLed is a job whose coordinator asks di-server for replicas.
	LifecycleCoordinatorLed Lifecycle = "CoordinatorLed"
)

// Priority is the coarse priority of a job.
// +kubebuilder:validation:Enum=normal;high
type Priority string

const (
	// PriorityNormal is the default priority.
	PriorityNormal Priority = "normal"
	// PriorityHigh is the priority of jobs that precede others.
	PriorityHigh Priority = "high"
)

// CleanPodPolicy decides which pods are deleted when a job has finished.
type CleanPodPolicy string

const (
	// CleanPodPolicyRunning deletes the pods that still run or are pending.
	CleanPodPolicyRunning CleanPodPolicy = "Running"
	// CleanPodPolicyAll deletes all pods.
	CleanPodPolicyAll CleanPodPolicy = "All"
	// CleanPodPolicyNone deletes no pod.
	CleanPodPolicyNone CleanPodPolicy = "None"
)

// RawObject is an object of another API (a pod template, a volume) in the JSON
// that the user wrote. So no field that is newer than the operator is lost, and
// no default of a schema is added.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type RawObject struct {
	apiextensionsv1.JSON `json:",inline"`
}

// Task is one part of a job: a number of equal replicas.
type Task struct {
	// replicas is the number of replicas of the task, 1 by default. It is 0, and
	// unused, for the collector and learner of a coordinator-led job.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// type is the role of the task: learner, collector, evaluator, none, or,
	// in a coordinator-led job, coordinator.
	Type TaskType `json:"type"`

	// name is the name of the task in the job; its type by default. A task of
	// type none must have a name. It is part of the names of the task's pods.
	// +optional
	Name string `json:"name,omitempty"`

	// drain protects the state of the task's replicas, such as parameters or a
	// replay buffer, when one is removed or replaced.
	// +optional
	Drain *Drain `json:"drain,omitempty"`

	// template is the core/v1 PodTemplateSpec of the task's pods.
	// +optional
	Template RawObject `json:"template,omitzero"`
}

// TaskType is the role of a task.
// +kubebuilder:validation:Enum=coordinator;learner;collector;evaluator;none
type TaskType string

const (
	// TaskTypeCoordinator is the task that leads a coordinator-led job.
	TaskTypeCoordinator TaskType = "coordinator"
	// TaskTypeLearner is the task that trains.
	TaskTypeLearner TaskType = "learner"
	// TaskTypeCollector is the task that rolls out.
	TaskTypeCollector TaskType = "collector"
	// TaskTypeEvaluator is the task that evaluates.
	TaskTypeEvaluator TaskType = "evaluator"
	// TaskTypeNone is a task of no special role.
	TaskTypeNone TaskType = "none"
)

// Elastic describes the resizes of a running job.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",messageExpression="'must be at most maxReplicas, which is %d, not %d'.format([self.maxReplicas, self.minReplicas])"
type Elastic struct {
	// task names the task that is resized; the default is the collector, or the only task.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Task string `json:"task,omitempty"`

	// minReplicas is the minimum number of replicas of the task.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the maximum number of replicas of the task.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// replicas is the desired number of replicas of the task; the scale
	// subresource reads and writes it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// onResize decides whether the other replicas continue (Continue, default) or
	// the whole job restarts (Restart). With a clusterSpec the job restarts. The
	// only exceptions are an explicit Continue for task worker of TensorFlow, and
	// for workers of MPI. Torch has none.
	// +optional
	OnResize OnResize `json:"onResize,omitempty"`
}

// OnResize decides what happens to the other replicas when a task is resized.
// +kubebuilder:validation:Enum=Continue;Restart
type OnResize string

const (
	// OnResizeContinue lets the other replicas continue.
	OnResizeContinue OnResize = "Continue"
	// OnResizeRestart restarts the whole job.
	OnResizeRestart OnResize = "Restart"
)

// FailurePolicy decides the effect of a failed replica.
type FailurePolicy struct {
	// rules are tried in order, and the first match decides. A failure without a
	// match restarts the job within backoffLimit.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Rules []FailurePolicyRule `json:"rules"`
}

// FailurePolicyRule matches failures and decides their effect.
type FailurePolicyRule struct {
	// action is the effect of a matching failure.
	Action FailurePolicyAction `json:"action"`

	// tasks names the tasks that the rule applies to; empty for all tasks.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	Tasks []string `json:"tasks,omitempty"`

	// onExitCodes matches the exit code of the replica's main container.
	// +optional
	OnExitCodes *ExitCodesRequirement `json:"onExitCodes,omitempty"`
}

// FailurePolicyAction is the effect of a failure.
// +kubebuilder:validation:Enum=FailJob;RestartJob;RestartReplica;Ignore
type FailurePolicyAction string

const (
	// FailurePolicyFailJob fails the job.
	FailurePolicyFailJob FailurePolicyAction = "FailJob"
	// FailurePolicyRestartJob restarts the whole job within backoffLimit.
	FailurePolicyRestartJob FailurePolicyAction = "RestartJob"
	// FailurePolicyRestartReplica restarts the failed replica within backoffLimit.
	FailurePolicyRestartReplica FailurePolicyAction = "RestartReplica"
	// FailurePolicyIgnore recreates the replica without counting.
	FailurePolicyIgnore FailurePolicyAction = "Ignore"
)

// ExitCodesRequirement matches exit codes, as in batch/v1 podFailurePolicy.
//
// +kubebuilder:validation:XValidation:rule="self.operator != 'In' || !(0 in self.values)",fieldPath=".values",message="must not hold 0 with operator In: a replica that exits with 0 has not failed"
type ExitCodesRequirement struct {
	// operator is In or NotIn.
	Operator ExitCodesOperator `json:"operator"`

	// values are the exit codes to compare with; 0 never matches a failure.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=255
	Values []int32 `json:"values"`
}

// ExitCodesOperator compares an exit code with a set.
// +kubebuilder:validation:Enum=In;NotIn
type ExitCodesOperator string

const (
	// ExitCodesIn matches exit codes that are in the set.
	ExitCodesIn ExitCodesOperator = "In"
	// ExitCodesNotIn matches exit codes that are not in the set.
	ExitCodesNotIn ExitCodesOperator = "NotIn"
)

// SuccessPolicy decides when a job has succeeded.
type SuccessPolicy struct {
	// operator is All: every replica of the deciding tasks must succeed.
	// +optional
	Operator SuccessPolicyOperator `json:"operator,omitempty"`

	// targetTasks names the tasks that decide; empty for all tasks.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	TargetTasks []string `json:"targetTasks,omitempty"`
}

// SuccessPolicyOperator decides how many of the deciding replicas must succeed.
// +kubebuilder:validation:Enum=All
type SuccessPolicyOperator string

// SuccessPolicyAll requires every deciding replica to succeed.
const SuccessPolicyAll SuccessPolicyOperator = "All"

// Scheduling selects the scheduler, queue and gang of a job's pods.
type Scheduling struct {
	// schedulerName is the scheduler of the job's pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// queue is the queue that the job waits in.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")`,messageExpression=`'must be the name of a queue: lower-case letters, digits, - and ., not "' + self + '"'`
	// +optional
	Queue string `json:"queue,omitempty"`

	// gang asks for the job's pods to be scheduled together.
	// +optional
	Gang *Gang `json:"gang,omitempty"`
}

// Gang asks for pods to be scheduled together.
type Gang struct {
	// minAvailable is how many pods must fit before any starts; all by default.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MinAvailable *int32 `json:"minAvailable,omitempty"`
}

// ClusterSpec names a framework whose cluster spec pods get.
// +kubebuilder:validation:Enum=TensorFlow;Torch;MPI
type ClusterSpec string

const (
	// ClusterSpecTensorFlow writes TF_CONFIG.
	ClusterSpecTensorFlow ClusterSpec = "TensorFlow"
	// ClusterSpecTorch writes MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, and
	// the same for torchrun.
	ClusterSpecTorch ClusterSpec = "Torch"
	// ClusterSpecMPI writes a hostfile and keys of ssh, and makes task launcher
	// wait for the other tasks.
	ClusterSpecMPI ClusterSpec = "MPI"
)

// MPI configures the launcher and the workers of an MPI job.
type MPI struct {
	// implementation is the MPI in the images: OpenMPI (default), Intel or MPICH.
	// It decides the format of the hostfile and the launcher's variables.
	// +optional
	Implementation MPIImplementation `json:"implementation,omitempty"`

	// slotsPerWorker is how many processes a worker runs; by default as many as
	// its main container has GPUs, or 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +optional
	SlotsPerWorker *int32 `json:"slotsPerWorker,omitempty"`

	// sshAuthMountPath is the folder of the keys of ssh in each main container;
	// /root/.ssh by default.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r"^(/[-A-Za-z0-9_.]+)+$")`,messageExpression=`'must be an absolute path such as /home/mpiuser/.ssh, not "' + self + '"'`
	// +optional
	SSHAuthMountPath string `json:"sshAuthMountPath,omitempty"`

	// runLauncherAsWorker makes the launcher the first host of the hostfile.
	// +optional
	RunLauncherAsWorker bool `json:"runLauncherAsWorker,omitempty"`
}

// MPIImplementation names an implementation of MPI.
// +kubebuilder:validation:Enum=OpenMPI;Intel;MPICH
type MPIImplementation string

const (
	// MPIImplementationOpenMPI is Open MPI, the default.
	MPIImplementationOpenMPI MPIImplementation = "OpenMPI"
	// MPIImplementationIntel is Intel MPI.
	MPIImplementationIntel MPIImplementation = "Intel"
	// MPIImplementationMPICH is MPICH.
	MPIImplementationMPICH MPIImplementation = "MPICH"
)

// Disruption limits how many replicas of a job voluntary evictions, such as those of
// kubectl drain, may take at once. Exactly one field is set. Both count all replicas
// that the job desires, and percentages of them round up, as those of a
// PodDisruptionBudget do.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxUnavailable) != has(self.minAvailable)",messageExpression="'must have exactly one of maxUnavailable and minAvailable, not ' + (has(self.maxUnavailable) ? 'both' : 'none')"
type Disruption struct {
	// maxUnavailable is how many replicas may be unavailable after an eviction: a
	// number, or a percentage such as 25%. 0 or 0% forbids evictions.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100000 : self.matches('^(100|[1-9]?[0-9])%$')",messageExpression="'must be a number from 0 to 100000 or a percentage from 0%% to 100%%, not %s'.format([self])"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// minAvailable is how many replicas must be available after an eviction: a
	// number, or a percentage such as 75%. 100% forbids evictions.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100000 : self.matches('^(100|[1-9]?[0-9])%$')",messageExpression="'must be a number from 0 to 100000 or a percentage from 0%% to 100%%, not %s'.format([self])"
	// +optional
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`
}

// AggregatorConfigReference names an AggregatorConfig.
type AggregatorConfigReference struct {
	// name is the name of the AggregatorConfig.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")`,messageExpression=`'must be the name of an AggregatorConfig: lower-case letters, digits, - and ., not "' + self + '"'`
	Name string `json:"name"`

	// namespace is its namespace; the job's by default.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")`,messageExpression=`'must be the name of a namespace: lower-case letters, digits and -, not "' + self + '"'`
	// +optional
	Namespace string `json:"namespace,omitempty"`
}
