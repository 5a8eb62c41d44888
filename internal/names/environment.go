// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// These variables are in the environment of coordinator-led pods.
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

// These variables are in the environment of worker-led pods.
const (
	EnvDIJobID     = "DI_JOB_ID"
	EnvDIServerURL = "DI_SERVER_URL"
	EnvDIRank      = "DI_RANK"
	EnvDINodes     = "DI_NODES"
	// EnvDINodesFile names the file with the addresses that do not fit into DI_NODES.
	EnvDINodesFile = "DI_NODES_FILE"
	// EnvDIReplicaRestart is how often the replica was restarted alone in this attempt; absent for never.
	EnvDIReplicaRestart = "DI_REPLICA_RESTART"
	// EnvDIJobReplicas is the number of replicas at the pod's creation; absent if DI_NODES names just these.
	EnvDIJobReplicas = "DI_JOB_REPLICAS"
)

// Pods read addresses that do not fit into one variable from a file with the variable's name. The
// variable then contains NodesFilePrefix and the file's path.
const (
	NodesVolume     = "di-nodes"
	NodesDirectory  = "/etc/diengine/nodes"
	NodesFilePrefix = "@"
)

// Pods of worker-led jobs with a clusterSpec have these variables in addition to EnvWorldSize,
// EnvMasterAddr and EnvMasterPort. Those that begin with PET are the defaults of torchrun's
// options.
const (
	EnvTFConfig      = "TF_CONFIG"
	EnvRank          = "RANK"
	EnvPETNodes      = "PET_NNODES"
	EnvPETNodeRank   = "PET_NODE_RANK"
	EnvPETMasterAddr = "PET_MASTER_ADDR"
	EnvPETMasterPort = "PET_MASTER_PORT"
)

// Pods of jobs with clusterSpec MPI have these variables, as those of kubeflow's mpi-operator do.
const (
	// EnvMPIRole is launcher or worker.
	EnvMPIRole = "K_MPI_JOB_ROLE"
	// MPIDirectory is where the hostfile and the script that discovers hosts are.
	MPIDirectory = "/etc/mpi"
	// MPIHostfile, MPIDiscovery and MPIWorkers are files there, and keys of the ConfigMap.
	MPIHostfile  = "hostfile"
	MPIDiscovery = "discover_hosts.sh"
	MPIWorkers   = "workers"
	// MPIVolume and SSHVolume are the volumes of these files and of the keys of ssh.
	MPIVolume = "di-mpi"
	SSHVolume = "di-ssh"
	// MPIWait is the launcher's init container that waits for the workers.
	MPIWait = "di-wait-for-workers"
	// SSHDirectory is the default folder of the keys of ssh.
	SSHDirectory = "/root/.ssh"
)

// Every pod of a job authenticates to di-server with this token.
const (
	TokenFile   = "/var/run/secrets/diengine.opendilab.org/token"
	TokenVolume = "di-server-token"
)

// These are the names of containers and ports.
const (
	// Container is the name of the main container.
	Container = "di-container"
	// Port is the name of the container port that a replica serves on.
	Port = "di-port"
	// MasterPort is the name of the port of the master of DDP learners.
	MasterPort = "master-port"
	// GPUPortPrefix, followed by a number, names the ports of a DDP learner's further GPU
	// processes.
	GPUPortPrefix = "gpu-port-"

	// DefaultWorkerPort is the port of worker-led pods.
	DefaultWorkerPort int32 = 22270
	// DefaultMasterPort is the port of the master of DDP learners.
	DefaultMasterPort int32 = 10314
)

// These are the default names, ports and addresses of di-server and the cluster-wide AggregatorConfig.
const (
	SystemNamespace         = "di-system"
	ServerService           = "di-server"
	HistoryService          = "di-history"
	HistoryPort       int32 = 443
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

// IsOurs reports whether the operator sets a variable of pods, by which a replica knows itself and its peers.
func IsOurs(variable string) bool {
	switch variable {
	case EnvWorldSize, EnvLocalWorldSize, EnvStartRank, EnvMasterAddr, EnvMasterPort:
		return true
	}
	return strings.HasPrefix(variable, "DI_") || strings.HasPrefix(variable, "KUBERNETES_")
}

// DefaultPort returns the port of a role whose container names none.
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

// PortVariable returns the environment key of a role's port.
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

// TaskNodesVariable returns the environment key of a task's addresses.
func TaskNodesVariable(task string) string {
	return "DI_" + strings.ToUpper(strings.ReplaceAll(task, "-", "_")) + "_NODES"
}

// TaskClusterVariable returns the environment key of the part of TF_CONFIG that
// lists a task's addresses.
func TaskClusterVariable(task string) string {
	return EnvTFConfig + "_" + strings.ToUpper(strings.ReplaceAll(task, "-", "_"))
}

// MainContainer returns the main container of a pod's spec: the one with the known name, else the
// first. A pod has at least one container.
func MainContainer(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == Container {
			return &spec.Containers[i]
		}
	}
	return &spec.Containers[0]
}

// OwnContainers returns the names of the containers that a pod was created with, the main one
// first. It returns none if the pod does not record them, or records one that it does not have.
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

// MainContainerOf returns the main container of an existing pod. Admission may have inserted
// another container before it.
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

// NamedPort returns the port with a name in a pod's main container, else otherwise.
func NamedPort(spec *corev1.PodSpec, name string, otherwise int32) int32 {
	for _, port := range MainContainer(spec).Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	return otherwise
}

// DIPort returns the port that a pod of the role serves on. It is the port named di-port of the
// container named di-container, else the role's default.
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
