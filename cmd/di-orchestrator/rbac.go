// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// What the operator may do beyond its controllers' own rights: elect a leader,
// keep the certificate authority of its webhooks, publish it, and issue
// di-server's certificate.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=di-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=di-system,resources=leases,resourceNames=di-orchestrator-operator,verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,namespace=di-system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,resourceNames=di-orchestrator-webhook-ca;di-orchestrator-server-tls,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=di-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=di-system,resources=configmaps,resourceNames=di-orchestrator-server-ca,verbs=get;update
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=dijobs.diengine.opendilab.org,verbs=get;patch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=di-orchestrator-mutating,verbs=get;patch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=di-orchestrator-validating,verbs=get;patch;update
