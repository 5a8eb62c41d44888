// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// Settings are what an installation may say about all jobs' pods.
type Settings struct {
	// ServerURLCoordinator is what coordinators are told of di-server.
	ServerURLCoordinator string
	// ServerURLReplica is what the other coordinator-led pods are told of di-server.
	ServerURLReplica string
	// ServerURLWorker is what worker-led pods are told of di-server.
	ServerURLWorker string
	// ServiceDomain is the domain of the cluster's services, such as svc.cluster.local.
	ServiceDomain string
	// GPUResource is the resource that a request's GPUs are asked for by.
	GPUResource corev1.ResourceName
	// PriorityClasses are the PriorityClasses of the pods of jobs by their coarse
	// priority, where neither job nor template names one; none by default.
	PriorityClasses map[v2alpha1.Priority]string
	// MaxPods is how many pods a job may have.
	MaxPods int32
	// JobVersion is the version in which owner references name jobs: the one that
	// jobs are to be stored in; v2alpha1 by default.
	JobVersion string
}

// Defaults returns the settings with the defaults in place of what is empty.
func (s Settings) Defaults() Settings {
	return Settings{
		ServerURLCoordinator: cmp.Or(s.ServerURLCoordinator, names.CoordinatorServer),
		ServerURLReplica:     cmp.Or(s.ServerURLReplica, names.ReplicaServer),
		ServerURLWorker:      cmp.Or(s.ServerURLWorker, names.WorkerServer),
		ServiceDomain:        cmp.Or(s.ServiceDomain, names.DefaultDomain),
		GPUResource:          cmp.Or(s.GPUResource, names.DefaultGPU),
		PriorityClasses:      s.PriorityClasses,
		MaxPods:              cmp.Or(s.MaxPods, limits.PodsPerJob),
		JobVersion:           cmp.Or(s.JobVersion, v2alpha1.Version),
	}
}
