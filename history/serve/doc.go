// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serve answers what is recorded of jobs, and makes plans by it, by HTTP. A caller reads what its own rights on
// dijobs, and on pods/log for tails, let it read in a namespace. Without them a job does not exist.
// Failures are answered as the API server does, with a Status.
//
// It needs these permissions:
//
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,resourceNames=di-orchestrator-server-tls,verbs=get
package serve
