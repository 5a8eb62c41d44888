// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package names has every name that deployed users and clients depend on: labels, annotations,
// object names, ports, environment keys and URLs. Each fact is one constant or function. The
// package must not read or write a cluster.
package names

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// These labels are on coordinator-led jobs' pods and services.
const (
	LabelGroupName      = "group-name"
	LabelDIJobName      = "dijob-name"
	LabelControllerName = "controller-name"
	LabelReplicaType    = "replica-type"
	LabelPodName        = "pod-name"
	LabelDDPLearnerType = "ddp-learner-type"
)

// These labels are on worker-led jobs' pods and services.
const (
	LabelOperator = "diengine/operator"
	LabelJob      = "diengine/job"
	LabelTaskType = "diengine/task-type"
	LabelTaskName = "diengine/task-name"
	LabelPod      = "diengine/pod"
)

// LabelShard is on pods that were created while jobs had several shards: the shard of their job, such as 1-of-2.
const LabelShard = "diengine/shard"

// FinalizerHistory is on jobs of an installation that requires their history, until their end is recorded.
const FinalizerHistory = "diengine.opendilab.org/history"

// These annotations are on pods.
const (
	// AnnotationReplicas is the total of replicas at the pod's creation.
	AnnotationReplicas = "diengine/replicas"
	// AnnotationRank is the pod's rank in the job.
	AnnotationRank = "diengine/rank"
	// AnnotationTaskRank is the pod's replica index.
	AnnotationTaskRank = "diengine/task-rank"
	// AnnotationNode is the node that the allocator chose.
	AnnotationNode = "diengine/node"
	// AnnotationAttempt is the job's count of restarts that the pod belongs to.
	AnnotationAttempt = "diengine/attempt"
	// AnnotationReschedule is the job's count of reschedules that the pod belongs
	// to; absent for none.
	AnnotationReschedule = "diengine/reschedule"
	// AnnotationReplicaRestart is how often the pod's replica was restarted alone
	// in that attempt; absent for never.
	AnnotationReplicaRestart = "diengine/replica-restart"
	// AnnotationCluster describes the cluster spec of a pod of a job with a clusterSpec: for which
	// frameworks it is, and how many replicas of which tasks it has.
	AnnotationCluster = "diengine/cluster"
	// AnnotationContainers lists the names of the containers that the pod was created with, the
	// main one first, separated by commas. Others are injected.
	AnnotationContainers = "diengine/containers"
	// AnnotationResources are the CPU and memory that the pod was built for or resized to, such as
	// "cpu=2,memory=4Gi"; absent for those of its template.
	AnnotationResources = "diengine/resources"
	// AnnotationResize is, on a pod that was resized in place, when the API server accepted that.
	AnnotationResize = "diengine/resize"
	// AnnotationResizeRefused are the CPU and memory to which the API server refused to resize the
	// pod in place.
	AnnotationResizeRefused = "diengine/resize-refused"
	// AnnotationSlot is the pod's slot in the Membership.
	AnnotationSlot = "diengine/slot"
	// AnnotationDDPGPUs lists, on an aggregator, the GPUs of each of its DDP learner pods, in rank
	// order, separated by commas.
	AnnotationDDPGPUs = "diengine/ddp-gpus"
	// AnnotationDDPPort is, on an aggregator, the port that its DDP learners serve on.
	AnnotationDDPPort = "diengine/ddp-port"
	// AnnotationAltered describes what admission changed of the pod at its creation; absent for nothing.
	AnnotationAltered = "diengine/altered"
)

// AnnotationSharedWith lists, on an AggregatorConfig, the namespaces whose jobs may name it,
// separated by commas; "*" for all. Jobs of its own namespace need no grant.
const AnnotationSharedWith = "diengine/shared-with"

// AnnotationCreator is, on a DIJob, the user who created it, as the API server authenticated the request. Admission
// sets it, and keeps it.
const AnnotationCreator = "diengine/creator"

// AnnotationRequests records, on a preemptible job, the last requests to resize it and their
// answers. Other jobs have them in status.requests. These requests write the spec, and only an
// annotation is written together with the spec.
const AnnotationRequests = "diengine/requests"

// ControllerName is the value of the labels that name the operator.
const ControllerName = "di-operator"

// AutoscalerName is the field manager of the autoscaler, the only writer of counts that a ratio rule sets.
const AutoscalerName = "di-autoscaler"

// NoPodCheck is the field manager of clients whose dry runs need no check of pods: they make their own, or want none.
const NoPodCheck = "di-no-pod-check"

// ServerName is di-server's field manager.
const ServerName = "di-server"

// ReplicaType is the role of a coordinator-led pod, as in its label.
type ReplicaType string

// These are the roles of coordinator-led pods.
const (
	ReplicaTypeCoordinator ReplicaType = "coordinator"
	ReplicaTypeCollector   ReplicaType = "collector"
	ReplicaTypeLearner     ReplicaType = "learner"
	ReplicaTypeDDPLearner  ReplicaType = "ddp-learner"
	ReplicaTypeAggregator  ReplicaType = "aggregator"
)

// DDPLearnerType distinguishes the master of DDP learners that span pods from the workers.
type DDPLearnerType string

// These are the two kinds of DDP learners that span pods.
const (
	DDPLearnerMaster DDPLearnerType = "ddp-learner-master"
	DDPLearnerWorker DDPLearnerType = "ddp-learner-worker"
)

// DDPKind returns the kind of the DDP learner pod with an index in rank order. The first is the master.
func DDPKind(index int) DDPLearnerType {
	if index == 0 {
		return DDPLearnerMaster
	}
	return DDPLearnerWorker
}

// JobLabels returns the labels of all pods and services of a coordinator-led job. They select its
// running pods.
func JobLabels(job string) map[string]string {
	return map[string]string{
		LabelGroupName:      v2alpha1.GroupName,
		LabelDIJobName:      job,
		LabelControllerName: ControllerName,
	}
}

// ReplicaLabels returns the labels of one pod of a coordinator-led job and of
// its service.
func ReplicaLabels(job string, role ReplicaType, pod string) map[string]string {
	labels := JobLabels(job)
	labels[LabelReplicaType] = string(role)
	labels[LabelPodName] = pod
	return labels
}

// IsSelecting reports whether the operator, its Services or its users select pods by a label.
func IsSelecting(label string) bool {
	switch label {
	case LabelGroupName, LabelDIJobName, LabelControllerName, LabelReplicaType, LabelPodName, LabelDDPLearnerType,
		LabelOperator, LabelJob, LabelTaskType, LabelTaskName, LabelPod, LabelShard:
		return true
	}
	return false
}

// IsIdentifying reports whether an annotation of pods is the operator's.
func IsIdentifying(annotation string) bool { return strings.HasPrefix(annotation, annotationPrefix) }

const annotationPrefix = "diengine/"

// RoleOf returns the role of a pod of a coordinator-led job, "" for other pods.
func RoleOf(pod *corev1.Pod) ReplicaType {
	return ReplicaType(pod.Labels[LabelReplicaType])
}

// RoleOrTask returns the role of a pod of a coordinator-led job, or the name of the task of another pod.
func RoleOrTask(pod *corev1.Pod) string {
	return cmp.Or(string(RoleOf(pod)), pod.Labels[LabelTaskName])
}

// WorkerJobLabels returns the labels of all pods and the service of a worker-led job.
func WorkerJobLabels(job string) map[string]string {
	return map[string]string{
		LabelOperator: ControllerName,
		LabelJob:      job,
	}
}

// WorkerLabels returns the labels of one pod of a worker-led job.
func WorkerLabels(job string, taskType v2alpha1.TaskType, task, pod string) map[string]string {
	labels := WorkerJobLabels(job)
	labels[LabelTaskType] = string(taskType)
	labels[LabelTaskName] = task
	labels[LabelPod] = pod
	return labels
}
