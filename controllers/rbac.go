// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

// What the operator may do. Jobs' finalizers are named because the owner
// references that it sets block the deletion of jobs. Pods and services are
// patched where an earlier release made them, pods also where Kueue holds them, and
// jobs where one stored them without what the scale subresource reads. What is
// stored in another version than is wanted is patched as it is, and owner
// references follow. ConfigMaps hold what the pods of a worker-led job are told of
// each other. Schedulers of gangs are told of them by objects of their own,
// which bear the job's labels.
//
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs/status,verbs=patch
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=memberships,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=memberships/status,verbs=update
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=aggregatorconfigs,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=aggregatorconfigs.diengine.opendilab.org,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions/status,resourceNames=dijobs.diengine.opendilab.org;aggregatorconfigs.diengine.opendilab.org,verbs=update
// +kubebuilder:rbac:groups="",namespace=di-system,resources=configmaps,resourceNames=di-orchestrator-storage-migration,verbs=update
// +kubebuilder:rbac:groups=scheduling.k8s.io;scheduling.volcano.sh;scheduling.x-k8s.io,resources=podgroups,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create
