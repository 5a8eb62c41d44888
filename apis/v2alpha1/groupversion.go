// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v2alpha1 holds the hub and storage version of the DI Orchestrator
// API: DIJob, AggregatorConfig and Membership, and the constants of their
// conditions, reasons and phases. It declares data and no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=diengine.opendilab.org
package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind of DI Orchestrator.
const GroupName = "diengine.opendilab.org"

// Version is the name of this API version.
const Version = "v2alpha1"

var (
	// GroupVersion is the group and version of the kinds of this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: Version}

	// SchemeBuilder collects the functions that register this package's kinds.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers this package's kinds with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&DIJob{}, &DIJobList{},
		&AggregatorConfig{}, &AggregatorConfigList{},
		&Membership{}, &MembershipList{},
		&ScalePlan{}, &ScalePlanList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
