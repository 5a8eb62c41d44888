// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

// The operator's permissions. It updates finalizers of jobs because its owner references block their
// deletion. It patches pods and services of earlier releases, pods with Kueue's finalizer, jobs that were
// stored without the field of the scale subresource, and objects that are not stored in the desired
// version. It resizes pods in place where the cluster can. Of HorizontalPodAutoscalers the autoscaler reads
// which jobs they scale. ConfigMaps contain the addresses of a worker-led job's pods. PodGroups describe
// gangs. PodDisruptionBudgets are those of jobs with spec.disruption. Workloads are those of Kueue, which say
// why pods wait.
//
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs/status,verbs=patch
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=memberships,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=memberships/status,verbs=update
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=scaleplans,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=scaleplans/status,verbs=patch
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=aggregatorconfigs,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=resourcequotas;limitranges,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=aggregatorconfigs.diengine.opendilab.org,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions/status,resourceNames=dijobs.diengine.opendilab.org;aggregatorconfigs.diengine.opendilab.org,verbs=update
// +kubebuilder:rbac:groups="",namespace=di-system,resources=configmaps,resourceNames=di-orchestrator-storage-migration,verbs=update
// +kubebuilder:rbac:groups=scheduling.k8s.io;scheduling.volcano.sh;scheduling.x-k8s.io,resources=podgroups,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses;resourceslices;resourceclaims;resourceclaimtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=metrics.k8s.io,resources=pods,verbs=list
// +kubebuilder:rbac:groups=autoscaling,resources=horizontalpodautoscalers,verbs=list
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
