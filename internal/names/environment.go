// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Environment of coordinator-led pods.
const (
	EnvPodNamespace     = "KUBERNETES_POD_NAMESPACE"
	EnvPodName          = "KUBERNETES_POD_NAME"
	EnvServerURL        = "KUBERNETES_SERVER_URL"
	EnvCoordinatorURL   = "KUBERNETES_COORDINATOR_URL"
	EnvServerAPIVersion = "KUBERNETES_SERVER_API_VERSION"

	EnvWorldSize      = "WORLD_SIZE"
	EnvLocalWorldSize = "LOCAL_WORLD_SIZE"
	EnvStartRank      = "START_RANK"
	EnvMasterAddr     = "MASTER_ADDR"
	EnvMasterPort     = "MASTER_PORT"
)

// Environment of worker-led pods.
const (
	EnvDIJobID     = "DI_JOB_ID"
	EnvDIServerURL = "DI_SERVER_URL"
	EnvDIRank      = "DI_RANK"
	EnvDINodes     = "DI_NODES"
	// EnvDINodesFile names the file that holds what DI_NODES cannot.
	EnvDINodesFile = "DI_NODES_FILE"
)

// Where pods find addresses that one variable cannot carry: in a file that is
// called like the variable. The variable then holds NodesFilePrefix and the
// file's path.
const (
	NodesVolume     = "di-nodes"
	NodesDirectory  = "/etc/diengine/nodes"
	NodesFilePrefix = "@"
)

// Environment of the pods of worker-led jobs with a clusterSpec, beside
// EnvWorldSize, EnvMasterAddr and EnvMasterPort. Those that begin with PET are
// the defaults of torchrun's options.
const (
	EnvTFConfig      = "TF_CONFIG"
	EnvRank          = "RANK"
	EnvPETNodes      = "PET_NNODES"
	EnvPETNodeRank   = "PET_NODE_RANK"
	EnvPETMasterAddr = "PET_MASTER_ADDR"
	EnvPETMasterPort = "PET_MASTER_PORT"
)

// The token by which every pod of a job tells di-server who it is.
const (
	TokenFile   = "/var/run/secrets/diengine.opendilab.org/token"
	TokenVolume = "di-server-token"
)

// Containers and ports.
const (
	// Container is the container that DI-engine runs in.
	Container = "di-container"
	// Port is the name of the container port that a replica serves on.
	Port = "di-port"
	// MasterPort is the name of the port of a master of DDP learners.
	MasterPort = "master-port"
	// GPUPortPrefix and a number name the ports of a DDP learner's further GPU processes.
	GPUPortPrefix = "gpu-port-"

	// DefaultWorkerPort is the port of worker-led pods.
	DefaultWorkerPort int32 = 22270
	// DefaultMasterPort is the port of a master of DDP learners.
	DefaultMasterPort int32 = 10314
)

// Where di-server and the cluster-wide AggregatorConfig live by default.
const (
	SystemNamespace         = "di-system"
	ServerService           = "di-server"
	ServerAudience          = "di-server"
	ServerPortV1      int32 = 8080
	ServerPortV2      int32 = 8081
	ServerPortTLS     int32 = 8443
	AggregatorConfig        = "aggregator-config"
	DefaultDomain           = "svc.cluster.local"
	DefaultGPU              = corev1.ResourceName("nvidia.com/gpu")
	CoordinatorServer       = "http://di-server.di-system:8080"
	ReplicaServer           = "di-server.di-system:8080"
	WorkerServer            = "http://di-server.di-system.svc.cluster.local:8081"
)

// DefaultPort returns the port that a role serves on where its container names none.
func DefaultPort(role ReplicaType) int32 {
	switch role {
	case ReplicaTypeCollector:
		return 22270
	case ReplicaTypeLearner, ReplicaTypeDDPLearner:
		return 22271
	case ReplicaTypeAggregator:
		return 22272
	case ReplicaTypeCoordinator:
		return 22273
	}
	return 0
}

// PortVariable returns the environment key that tells a role its port.
func PortVariable(role ReplicaType) string {
	switch role {
	case ReplicaTypeCollector:
		return "COLLECTOR_PORT"
	case ReplicaTypeLearner, ReplicaTypeDDPLearner:
		return "LEARNER_PORT"
	case ReplicaTypeAggregator:
		return "AGGREGATOR_PORT"
	case ReplicaTypeCoordinator:
		return "COORDINATOR_PORT"
	}
	return ""
}

// TaskNodesVariable returns the environment key of the addresses of a task.
func TaskNodesVariable(task string) string {
	return "DI_" + strings.ToUpper(strings.ReplaceAll(task, "-", "_")) + "_NODES"
}

// TaskClusterVariable returns the environment key of the part of TF_CONFIG that
// lists a task's addresses.
func TaskClusterVariable(task string) string {
	return EnvTFConfig + "_" + strings.ToUpper(strings.ReplaceAll(task, "-", "_"))
}

// MainContainer returns the container of a pod that DI-engine runs in: the one so
// named, else the first. A pod has one at least.
func MainContainer(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == Container {
			return &spec.Containers[i]
		}
	}
	return &spec.Containers[0]
}

// OwnContainers returns the names of the containers that a pod was made with, the
// main one first; none where it does not say so, or names one that it has not.
func OwnContainers(pod *corev1.Pod) []string {
	text := pod.Annotations[AnnotationContainers]
	if text == "" {
		return nil
	}
	own := strings.Split(text, ",")
	for _, name := range own {
		if !slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool { return container.Name == name }) {
			return nil
		}
	}
	return own
}

// MainContainerOf returns the main container of a pod that exists, in which
// admission may have put another container first.
func MainContainerOf(pod *corev1.Pod) *corev1.Container {
	if own := OwnContainers(pod); len(own) > 0 {
		for i := range pod.Spec.Containers {
			if pod.Spec.Containers[i].Name == own[0] {
				return &pod.Spec.Containers[i]
			}
		}
	}
	return MainContainer(&pod.Spec)
}

// NamedPort returns the port of a name of a pod's main container, else the other.
func NamedPort(spec *corev1.PodSpec, name string, otherwise int32) int32 {
	for _, port := range MainContainer(spec).Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	return otherwise
}

// DIPort returns the port that a pod of the role serves on: the port named
// di-port of the container named di-container, else the role's default.
func DIPort(spec *corev1.PodSpec, role ReplicaType) int32 {
	for i := range spec.Containers {
		if spec.Containers[i].Name != Container {
			continue
		}
		for _, port := range spec.Containers[i].Ports {
			if port.Name == Port {
				return port.ContainerPort
			}
		}
	}
	return DefaultPort(role)
}
