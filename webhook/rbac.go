// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

// The rights of the webhooks: store their certificate authority, publish it with their endpoint,
// complete the definitions of an earlier release, and record Events. They read the job that a ScalePlan or a
// request to dijobs/scale names. They create pods in dry run only, which a ValidatingAdmissionPolicy enforces.
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=create
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs,verbs=get
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=di-system,resources=secrets,resourceNames=di-orchestrator-webhook-ca,verbs=get;update;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=dijobs.diengine.opendilab.org,verbs=get;watch;patch;update
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=aggregatorconfigs.diengine.opendilab.org,verbs=get;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=di-orchestrator-mutating,verbs=get;patch;update;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=di-orchestrator-validating,verbs=get;patch;update;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
