// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

// The rights that only a takeover needs, in the namespace of the operator. It deletes
// the webhook configurations of the earlier release, scales its Deployments to zero,
// removes the EndpointSlices of the bridge, and annotates the definition with its
// progress. The operator's own rights cover reading pods and changing Services. The role
// of these rights can be removed when the takeover is done.
//
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=di-mutating-webhook-configuration,verbs=get;delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=di-validating-webhook-configuration,verbs=get;delete
// +kubebuilder:rbac:groups=apps,namespace=di-system,resources=deployments/scale,resourceNames=di-operator;di-webhook;di-server,verbs=get;update
// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=di-system,resources=endpointslices,verbs=list;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=dijobs.diengine.opendilab.org,verbs=patch
