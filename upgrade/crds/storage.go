// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// AnnotationStorageVersion is on a definition and names the version that its
// objects must be stored in. Administrators write it.
const AnnotationStorageVersion = v2alpha1.GroupName + "/storage-version"

// AnnotationStopServing is on the definition of DIJobs. It names the version that this definition
// and the definition of AggregatorConfigs must stop serving.
const AnnotationStopServing = v2alpha1.GroupName + "/stop-serving"

// StorageOf returns the storage version of a definition.
func StorageOf(definition *apiextensionsv1.CustomResourceDefinition) string {
	for i := range definition.Spec.Versions {
		if definition.Spec.Versions[i].Storage {
			return definition.Spec.Versions[i].Name
		}
	}
	return ""
}

// WithStorage returns a copy of a definition with another storage version, which the definition
// must have.
func WithStorage(definition *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.CustomResourceDefinition {
	flipped := definition.DeepCopy()
	for i := range flipped.Spec.Versions {
		flipped.Spec.Versions[i].Storage = flipped.Spec.Versions[i].Name == version
	}
	return flipped
}

// WithoutServing returns a copy of a definition that serves all versions except the stopped one,
// which may be empty. The storage version is always served.
func WithoutServing(definition *apiextensionsv1.CustomResourceDefinition, stopped string) *apiextensionsv1.CustomResourceDefinition {
	changed := definition.DeepCopy()
	for i := range changed.Spec.Versions {
		version := &changed.Spec.Versions[i]
		version.Served = version.Storage || version.Name != stopped
	}
	return changed
}
