// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server is di-server: the HTTP interface through which coordinators
// ask for replicas and report failed ones, and workers resize and profile
// their job. It reads caches and writes what is wanted, a Membership, a job's
// status or a preemptible job's range; it must not create or delete pods, which
// is the operator's.
//
// Any number of servers serve at once and none leads: each write is one
// optimistic update, so that two servers lose and double nothing.
//
// What the server may do in the cluster:
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
