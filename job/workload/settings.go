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

// Settings are the settings of an installation for all jobs' pods.
type Settings struct {
	// ServerURLCoordinator is the URL of di-server for coordinators.
	ServerURLCoordinator string
	// ServerURLReplica is the URL of di-server for the other coordinator-led pods.
	ServerURLReplica string
	// ServerURLWorker is the URL of di-server for worker-led pods.
	ServerURLWorker string
	// ServiceDomain is the domain of the cluster's services, such as svc.cluster.local.
	ServiceDomain string
	// GPUResource is the resource of a request's GPUs.
	GPUResource corev1.ResourceName
	// PriorityClasses are the PriorityClasses of jobs' pods by the job's coarse priority. They
	// apply if neither job nor template names one; none by default.
	PriorityClasses map[v2alpha1.Priority]string
	// MaxPods is how many pods a job may have.
	MaxPods int32
	// JobVersion is the version of jobs in owner references, which is their storage version;
	// v2alpha1 by default.
	JobVersion string
	// InlineNodes is up to how many bytes of addresses a worker-led pod contains itself; 1 KiB by
	// default. Pods of a job with longer addresses refer to a ConfigMap; if it is negative, all do.
	InlineNodes int
}

// Defaults returns the settings with defaults for empty fields.
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
		InlineNodes:          cmp.Or(s.InlineNodes, inlineNodes),
	}
}
