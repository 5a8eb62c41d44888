// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

// What the operator may do. Jobs' finalizers are named because the owner
// references that it sets block the deletion of jobs. Pods and services are
// patched where an earlier release made them, and jobs where one stored them
// without what the scale subresource reads.
//
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs/status,verbs=patch
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=memberships,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=memberships/status,verbs=update
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=aggregatorconfigs,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
