// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watch records all jobs while they change. Informers only note which jobs have changed, and
// one loop records them in batches. While the database is away it retries, and jobs are recorded as
// they are then: what is lost of that time is reports in between. After a start it compares the
// database with what exists.
//
// The program needs these permissions, with those of package serve:
//
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs;memberships;scaleplans,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=di-system,resources=configmaps,resourceNames=di-orchestrator-allocation-groups,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=di-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=di-system,resources=leases,resourceNames=di-orchestrator-history,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=di-system,resources=events,verbs=create;patch
package watch
