// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

// The operator's rights beyond those of its controllers: elect a leader and the holders of shards, issue di-server's
// certificate by the webhooks' authority, create the default AggregatorConfig, and probe admission.
// RBAC has no verb for a dry run alone. The operator may therefore create jobs in its own
// namespace, where it can create pods in any case.
//
// +kubebuilder:rbac:groups=diengine.opendilab.org,namespace=di-system,resources=dijobs,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=di-system,resources=leases,verbs=create;get;list;update;patch
// +kubebuilder:rbac:groups="",namespace=di-system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,resourceNames=di-orchestrator-webhook-ca,verbs=get
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,resourceNames=di-orchestrator-server-tls,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=di-system,resources=configmaps,resourceNames=di-orchestrator-server-ca,verbs=update
// +kubebuilder:rbac:groups=diengine.opendilab.org,namespace=di-system,resources=aggregatorconfigs,verbs=get;create
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=dijobs.diengine.opendilab.org,verbs=get;list;watch;update
