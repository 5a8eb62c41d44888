// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server is di-server: the HTTP server through which coordinators request replicas and report failed
// ones, and through which workers resize and profile their job. It reads caches. It writes desired state only:
// a Membership, a job's status or a preemptible job's range. It must not create or delete pods, because only
// the operator does.
//
// Any number of servers run concurrently without a leader. Each write is one optimistic update, so concurrent
// servers neither lose nor repeat a change.
//
// The server needs these permissions:
//
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs,verbs=get;list;patch;watch
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs/status,verbs=patch
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=memberships,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=aggregatorconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,resourceNames=di-orchestrator-server-tls,verbs=get
package server
