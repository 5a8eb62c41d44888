// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package names holds every name that deployed users and clients depend on:
// labels, annotations, object names, ports, environment keys and URLs, one
// constant or function per fact. It must not read or write a cluster.
package names

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Labels of coordinator-led jobs' pods and services.
const (
	LabelGroupName      = "group-name"
	LabelDIJobName      = "dijob-name"
	LabelControllerName = "controller-name"
	LabelReplicaType    = "replica-type"
	LabelPodName        = "pod-name"
	LabelDDPLearnerType = "ddp-learner-type"
)

// Labels of worker-led jobs' pods and services.
const (
	LabelOperator = "diengine/operator"
	LabelJob      = "diengine/job"
	LabelTaskType = "diengine/task-type"
	LabelTaskName = "diengine/task-name"
	LabelPod      = "diengine/pod"
)

// Annotations of pods.
const (
	// AnnotationReplicas is the total of replicas at the pod's creation.
	AnnotationReplicas = "diengine/replicas"
	// AnnotationRank is the pod's rank in the job.
	AnnotationRank = "diengine/rank"
	// AnnotationTaskRank is the pod's rank in its task.
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
	// AnnotationCluster is, on a pod of a job with a clusterSpec, which frameworks
	// the pod was told of its cluster for, and how many replicas of which tasks.
	AnnotationCluster = "diengine/cluster"
	// AnnotationContainers is the names of the containers that the pod was made
	// with, the main one first, separated by commas. Others are injected.
	AnnotationContainers = "diengine/containers"
	// AnnotationSlot is the slot of the Membership that the pod fills.
	AnnotationSlot = "diengine/slot"
	// AnnotationDDPGPUs is, on an aggregator, the GPUs of each of its DDP learner
	// pods, in rank order, separated by commas.
	AnnotationDDPGPUs = "diengine/ddp-gpus"
	// AnnotationDDPPort is, on an aggregator, the port that its DDP learners serve on.
	AnnotationDDPPort = "diengine/ddp-port"
)

// AnnotationSharedWith is, on an AggregatorConfig, the namespaces whose jobs may name it,
// separated by commas; "*" for all. Jobs of its own namespace need no grant.
const AnnotationSharedWith = "diengine/shared-with"

// AnnotationRequests is, on a preemptible job, the last requests to resize it
// and their answers, as status.requests is on others: what a write of the spec
// did can only be recorded beside the spec.
const AnnotationRequests = "diengine/requests"

// ControllerName is the value of the labels that name the operator.
const ControllerName = "di-operator"

// ServerName is the name under which di-server owns fields.
const ServerName = "di-server"

// ReplicaType is the role of a coordinator-led pod, as its label says it.
type ReplicaType string

// The roles of coordinator-led pods.
const (
	ReplicaTypeCoordinator ReplicaType = "coordinator"
	ReplicaTypeCollector   ReplicaType = "collector"
	ReplicaTypeLearner     ReplicaType = "learner"
	ReplicaTypeDDPLearner  ReplicaType = "ddp-learner"
	ReplicaTypeAggregator  ReplicaType = "aggregator"
)

// DDPLearnerType tells the master of DDP learners that span pods from the others.
type DDPLearnerType string

// The two kinds of DDP learners that span pods.
const (
	DDPLearnerMaster DDPLearnerType = "ddp-learner-master"
	DDPLearnerWorker DDPLearnerType = "ddp-learner-worker"
)

// JobLabels returns the labels that all pods and services of a
// coordinator-led job bear; they select its running pods.
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

// RoleOf returns the role of a pod of a coordinator-led job, "" for other pods.
func RoleOf(pod *corev1.Pod) ReplicaType {
	return ReplicaType(pod.Labels[LabelReplicaType])
}

// WorkerJobLabels returns the labels that all pods and the service of a
// worker-led job bear.
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
