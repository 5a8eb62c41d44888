// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Autoscale lets the operator change the size and resources of a job while it runs.
type Autoscale struct {
	// ratio lets the collectors follow what the learner consumes.
	// +optional
	Ratio *RatioRule `json:"ratio,omitempty"`

	// memory recreates an out-of-memory replica with more memory.
	// +optional
	Memory *MemoryRule `json:"memory,omitempty"`

	// pending reduces the requests of replicas that cannot be scheduled.
	// +optional
	Pending *PendingRule `json:"pending,omitempty"`

	// optimizer creates plans from the usage of the job.
	// +optional
	Optimizer *OptimizerRule `json:"optimizer,omitempty"`
}

// RatioRule lets the producers of samples, such as collectors, follow the capacity
// of their consumer, such as a learner.
type RatioRule struct {
	// driver is what applies the rule: the operator (Operator, default), or the
	// job's own coordinator, which reads it as advice (Coordinator).
	// +optional
	Driver RatioDriver `json:"driver,omitempty"`

	// producers are the tasks that produce samples, the preferred one first. The
	// default is the elastic task of a worker-led job, and the collector of a
	// coordinator-led one.
	// +listType=map
	// +listMapKey=task
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Producers []ProducerPool `json:"producers,omitempty"`

	// consumer is the task that consumes samples; the learner by default.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Consumer string `json:"consumer,omitempty"`

	// maxStaleness is how many versions of the policy old a sample may be when it
	// is consumed. The default is what the learner reports, or else 4.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxStaleness *int32 `json:"maxStaleness,omitempty"`

	// prometheus reads the measurements from Prometheus instead of profilings.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`
}

// RatioDriver is what applies a ratio rule.
// +kubebuilder:validation:Enum=Operator;Coordinator
type RatioDriver string

const (
	// RatioByOperator lets the operator resize the job.
	RatioByOperator RatioDriver = "Operator"
	// RatioByCoordinator lets the operator only advise.
	RatioByCoordinator RatioDriver = "Coordinator"
)

// ProducerPool is a task that produces samples, and its bounds.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",messageExpression="'must be at most maxReplicas, which is %d, not %d'.format([self.maxReplicas, self.minReplicas])"
type ProducerPool struct {
	// task is the name of the task.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Task string `json:"task"`

	// minReplicas is the minimum number of replicas of the task. For the elastic
	// task the default is its bound.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the maximum number of replicas of the task. For the elastic
	// task the default is its bound.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// PrometheusSource reads measurements of a ratio rule by PromQL. Each query must
// return one value. $(NAMESPACE) and $(JOB) stand for those of the job.
type PrometheusSource struct {
	// producerCapacity is the samples per second of one producer that is not blocked.
	// +kubebuilder:validation:MaxLength=1024
	ProducerCapacity string `json:"producerCapacity"`

	// consumerCapacity is the fresh samples per second of the consumer if it never waits.
	// +kubebuilder:validation:MaxLength=1024
	ConsumerCapacity string `json:"consumerCapacity"`

	// queue is the number of samples that wait.
	// +kubebuilder:validation:MaxLength=1024
	Queue string `json:"queue"`

	// batch is the number of samples of a step of the consumer.
	// +kubebuilder:validation:MaxLength=1024
	Batch string `json:"batch"`
}

// MemoryRule recreates an out-of-memory replica with more memory.
type MemoryRule struct {
	// growthPercent is the memory of the next attempt, in percent of the last one;
	// 200 by default.
	// +kubebuilder:validation:Minimum=110
	// +kubebuilder:validation:Maximum=400
	// +optional
	GrowthPercent *int32 `json:"growthPercent,omitempty"`

	// max is the maximum memory of a replica. The installation's maximum and the
	// largest node also limit it.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?0*([0-9]|1[0-8]))?$`
	// +optional
	Max *resource.Quantity `json:"max,omitempty"`
}

// PendingRule reduces the requests of replicas that cannot be scheduled.
type PendingRule struct {
	// afterSeconds is how long a replica must be unschedulable, in seconds; 900 by default.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=604800
	// +optional
	AfterSeconds *int32 `json:"afterSeconds,omitempty"`

	// shrinkPercent is the new request of CPU and memory, in percent of the last one;
	// 50 by default.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=90
	// +optional
	ShrinkPercent *int32 `json:"shrinkPercent,omitempty"`

	// min are the least requests.
	// +optional
	Min ReplicaResources `json:"min,omitzero"`
}

// OptimizerRule creates plans from the usage of the job.
type OptimizerRule struct {
	// type is Local (default), or Remote, which asks the installation's optimizer
	// service and falls back to Local.
	// +optional
	Type OptimizerType `json:"type,omitempty"`

	// dryRun only records in the status what the optimizer would do.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// limit are the maximum total requests of the job.
	// +optional
	Limit ReplicaResources `json:"limit,omitzero"`
}

// OptimizerType is the kind of an optimizer.
// +kubebuilder:validation:Enum=Local;Remote
type OptimizerType string

const (
	// OptimizerLocal decides by the usage of the job alone.
	OptimizerLocal OptimizerType = "Local"
	// OptimizerRemote asks the installation's optimizer service.
	OptimizerRemote OptimizerType = "Remote"
)

// Drain describes how a replica that holds state, such as a parameter server or a
// replay buffer, is removed without losing it.
type Drain struct {
	// timeoutSeconds is how long the members may take to acknowledge the new
	// membership, in seconds; 600 by default.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// onTimeout decides about replicas whose removal was not acknowledged in time:
	// Keep (default) keeps them and fails the change, Remove removes them.
	// +optional
	OnTimeout DrainTimeoutAction `json:"onTimeout,omitempty"`
}

// DrainTimeoutAction decides about replicas whose removal was not acknowledged.
// +kubebuilder:validation:Enum=Keep;Remove
type DrainTimeoutAction string

const (
	// DrainKeep keeps the replicas, and fails the change.
	DrainKeep DrainTimeoutAction = "Keep"
	// DrainRemove removes the replicas.
	DrainRemove DrainTimeoutAction = "Remove"
)

// ResourceOverride is resources that a job's pods have instead of their template's.
type ResourceOverride struct {
	// task is the name of the task.
	// +kubebuilder:validation:MaxLength=63
	Task string `json:"task"`

	// index is the index of the replica in its task; absent, like slot, for all its
	// replicas without an override of their own.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Index *int32 `json:"index,omitempty"`

	// slot is the slot of a member of a coordinator-led job, which has no index.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Slot string `json:"slot,omitempty"`

	// resources are the requests.
	Resources ReplicaResources `json:"resources"`

	// reason is OutOfMemory, Unschedulable or ScalePlan.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Reason string `json:"reason,omitempty"`

	// attempts counts the changes for this reason.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
}

// Reasons of resource overrides.
const (
	// OverrideOutOfMemory is more memory after an out-of-memory failure.
	OverrideOutOfMemory = "OutOfMemory"
	// OverrideUnschedulable is fewer resources because the pod could not be scheduled.
	OverrideUnschedulable = "Unschedulable"
	// OverrideScalePlan is resources of a ScalePlan.
	OverrideScalePlan = "ScalePlan"
)

// PlanRecord is the ScalePlan that the operator executes, or executed last.
type PlanRecord struct {
	// name is the name of the ScalePlan.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is its UID.
	// +kubebuilder:validation:MaxLength=253
	UID string `json:"uid"`

	// phase is its progress.
	Phase PlanPhase `json:"phase"`

	// message describes the progress for people.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Message string `json:"message,omitempty"`

	// creationTime is when it was created. Only a later plan supersedes it.
	// +optional
	CreationTime *metav1.Time `json:"creationTime,omitempty"`

	// startTime is when the operator started to execute it.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when it finished.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// replicas are the replicas that it gives each task whose number it sets.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Replicas map[string]int32 `json:"replicas,omitempty"`

	// indexes are the indexes that it gives the replicas of each task for which it
	// names pods, as ranges ("0,2-4").
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Indexes map[string]string `json:"indexes,omitempty"`

	// resized is set once the job has these replicas in its spec, or in its
	// Membership. Another writer may change them from then on.
	// +optional
	Resized bool `json:"resized,omitempty"`

	// migrations are the pods that it replaces.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +optional
	Migrations []MigratedPod `json:"migrations,omitempty"`
}

// MigratedPod is a pod that a plan replaces.
type MigratedPod struct {
	// pod is the name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// uid is the UID of the pod to replace.
	// +kubebuilder:validation:MaxLength=253
	UID string `json:"uid"`

	// node is its node if the new pod should run on another one.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
}

// AutoscalingStatus is what the autoscaler last decided.
type AutoscalingStatus struct {
	// ratio is the last decision of the ratio rule.
	// +optional
	Ratio *RatioStatus `json:"ratio,omitempty"`

	// optimizer is the last decision of the optimizer.
	// +optional
	Optimizer *OptimizerStatus `json:"optimizer,omitempty"`
}

// RatioStatus is the last decision of a ratio rule. A new leader continues with it.
// Rates are in thousandths of a sample per second, because floating-point numbers
// do not survive all clients.
type RatioStatus struct {
	// decidedAt is when the rule last decided.
	// +optional
	DecidedAt *metav1.MicroTime `json:"decidedAt,omitempty"`

	// producerCapacity is the estimated capacity of one producer.
	// +optional
	ProducerCapacity int64 `json:"producerCapacity,omitempty"`

	// consumerCapacity is the estimated capacity of the consumer, in fresh samples.
	// +optional
	ConsumerCapacity int64 `json:"consumerCapacity,omitempty"`

	// queue is the number of samples that wait.
	// +optional
	Queue int64 `json:"queue,omitempty"`

	// targetQueue is the number of samples that should wait.
	// +optional
	TargetQueue int64 `json:"targetQueue,omitempty"`

	// integral is the state of the controller's integral, in samples times seconds.
	// +optional
	Integral int64 `json:"integral,omitempty"`

	// startDelayMilliseconds is the 95th percentile of the start delays of producers.
	// +optional
	StartDelayMilliseconds int64 `json:"startDelayMilliseconds,omitempty"`

	// correction is the factor by which the number of producers differs from the ratio of the
	// capacities, in thousandths, because the observed waiting contradicts them. 0 is none.
	// +optional
	Correction int32 `json:"correction,omitempty"`

	// starved is the share of time that the consumer waited, in thousandths.
	// +optional
	Starved int32 `json:"starved,omitempty"`

	// blocked is the share of time that producers were blocked, in thousandths.
	// +optional
	Blocked int32 `json:"blocked,omitempty"`

	// desired is the number of producers that the rule wants, before it is clamped.
	// +optional
	Desired int32 `json:"desired,omitempty"`

	// replicas is the number of producers that the rule requested last, by task.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Replicas map[string]int32 `json:"replicas,omitempty"`

	// grownAt and shrunkAt are the times of the last resizes.
	// +optional
	GrownAt *metav1.MicroTime `json:"grownAt,omitempty"`
	// shrunkAt is when the rule last removed producers.
	// +optional
	ShrunkAt *metav1.MicroTime `json:"shrunkAt,omitempty"`

	// reason is the machine-readable reason of the decision.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Reason string `json:"reason,omitempty"`

	// message describes the decision for people.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// OptimizerStatus is the last decision of an optimizer.
type OptimizerStatus struct {
	// stage is the stage of the job for the optimizer: CREATE, WORKER_INITIAL,
	// PS_INITIAL or RUNNING.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Stage string `json:"stage,omitempty"`

	// decidedAt is when the optimizer last decided.
	// +optional
	DecidedAt *metav1.Time `json:"decidedAt,omitempty"`

	// plan is the name of the last ScalePlan that it created.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Plan string `json:"plan,omitempty"`

	// plannedAt is when it last created a plan.
	// +optional
	PlannedAt *metav1.Time `json:"plannedAt,omitempty"`

	// serversPlannedAt is when it last created a plan that changes a parameter server.
	// +optional
	ServersPlannedAt *metav1.Time `json:"serversPlannedAt,omitempty"`

	// peaks are the maximum usages of one replica of each task. Later jobs of the
	// same group start with them.
	// +listType=map
	// +listMapKey=task
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Peaks []TaskPeak `json:"peaks,omitempty"`

	// message describes the decision for people.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// RoleRates is what the workers of a role have reported to one di-server. Counters
// are sums over its reporters since it started, so that the difference of two
// observations is what happened in between. Other values
// are the last ones. A reader ignores values that are too old.
type RoleRates struct {
	// server identifies the process of di-server; each one writes its own items.
	// +kubebuilder:validation:MaxLength=63
	Server string `json:"server"`

	// role is the role of the reporters: the name or the type of their task.
	// +kubebuilder:validation:MaxLength=63
	Role string `json:"role"`

	// updatedAt is the time of the last report.
	UpdatedAt metav1.MicroTime `json:"updatedAt"`

	// reporters is the number of workers that reported lately.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Reporters int32 `json:"reporters,omitempty"`

	// reportedMilliseconds is the time that the reports cover, in milliseconds of one worker.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReportedMilliseconds int64 `json:"reportedMilliseconds,omitempty"`

	// samples counts the samples that were produced or consumed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Samples int64 `json:"samples,omitempty"`

	// busyMilliseconds is the time that the workers worked.
	// +kubebuilder:validation:Minimum=0
	// +optional
	BusyMilliseconds int64 `json:"busyMilliseconds,omitempty"`

	// blockedMilliseconds is the time that producers waited, for a full queue or for a policy.
	// +kubebuilder:validation:Minimum=0
	// +optional
	BlockedMilliseconds int64 `json:"blockedMilliseconds,omitempty"`

	// starvedMilliseconds is the time that consumers waited for samples.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StarvedMilliseconds int64 `json:"starvedMilliseconds,omitempty"`

	// queue is the number of samples that wait.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Queue int64 `json:"queue,omitempty"`

	// queueCapacity is the number of samples that may wait.
	// +kubebuilder:validation:Minimum=0
	// +optional
	QueueCapacity int64 `json:"queueCapacity,omitempty"`

	// inFlight is the number of samples that are being produced.
	// +kubebuilder:validation:Minimum=0
	// +optional
	InFlight int64 `json:"inFlight,omitempty"`

	// batchSamples is the number of samples of a step of all consumers.
	// +kubebuilder:validation:Minimum=0
	// +optional
	BatchSamples int64 `json:"batchSamples,omitempty"`

	// policyVersion is the newest version of the policy that a worker has.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PolicyVersion int64 `json:"policyVersion,omitempty"`

	// maxStaleness is how many versions old a sample may be when it is consumed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxStaleness int64 `json:"maxStaleness,omitempty"`

	// stalenessMeanThousandths is the mean staleness of the consumed samples, in
	// thousandths of a version.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StalenessMeanThousandths int64 `json:"stalenessMeanThousandths,omitempty"`

	// stalenessMax is the largest staleness of the consumed samples.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StalenessMax int64 `json:"stalenessMax,omitempty"`

	// replayRatioThousandths is how many times each sample is consumed, in thousandths.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReplayRatioThousandths int64 `json:"replayRatioThousandths,omitempty"`
}

// TaskPeak is the maximum usage of one replica of a task.
type TaskPeak struct {
	// task is the name of the task.
	// +kubebuilder:validation:MaxLength=63
	Task string `json:"task"`

	// cpu is the CPU, in millicores.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CPU int64 `json:"cpu,omitempty"`

	// memory is the memory, in bytes.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Memory int64 `json:"memory,omitempty"`

	// grownAt is when a plan or a recovery last raised the requests of the task.
	// +optional
	GrownAt *metav1.Time `json:"grownAt,omitempty"`
}
