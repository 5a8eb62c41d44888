// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

// What serving the webhooks needs: its authority's Secret, and the places
// where that is published.
//
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,resourceNames=di-orchestrator-webhook-ca,verbs=get;update
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=dijobs.diengine.opendilab.org,verbs=get;patch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=di-orchestrator-mutating,verbs=get;patch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=di-orchestrator-validating,verbs=get;patch;update
