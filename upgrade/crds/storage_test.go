// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"opendilab.org/di-orchestrator/upgrade/crds"
)

func storedAs(version string) *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	definition.Name = "dijobs.diengine.opendilab.org"
	for _, name := range []string{"v1alpha1", "v2alpha1"} {
		definition.Spec.Versions = append(definition.Spec.Versions,
			apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: name == version})
	}
	return definition
}

func TestSwitchingTheStorageVersionLeavesOneStoredAndTheOriginalAsItWas(t *testing.T) {
	g := NewWithT(t)
	definition := storedAs("v1alpha1")
	flipped := crds.WithStorage(definition, "v2alpha1")
	g.Expect(crds.StorageOf(flipped)).To(Equal("v2alpha1"))
	g.Expect(flipped.Spec.Versions[0].Storage).To(BeFalse())
	g.Expect(crds.StorageOf(definition)).To(Equal("v1alpha1"))
}
