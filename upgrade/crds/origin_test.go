// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/config/crd"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/upgrade/crds"
)

// known returns a version whose schema knows these fields of the spec.
func known(name string, fields ...string) apiextensionsv1.CustomResourceDefinitionVersion {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for _, field := range fields {
		spec.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: "object"}
	}
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}}
	return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}
}

func TestADefinitionTellsWhoseItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		kind     string
		versions []apiextensionsv1.CustomResourceDefinitionVersion
		want     crds.Origin
	}{
		"jobs of v0.2.2":                       {"DIJob", []apiextensionsv1.CustomResourceDefinitionVersion{known("v1alpha1", "coordinator")}, crds.OriginCoordinatorLed},
		"AggregatorConfigs of v0.2.2":          {"AggregatorConfig", []apiextensionsv1.CustomResourceDefinitionVersion{known("v1alpha1", "aggregator")}, crds.OriginCoordinatorLed},
		"jobs of v0.2.2 without a schema":      {"DIJob", []apiextensionsv1.CustomResourceDefinitionVersion{known("v1alpha1")}, crds.OriginCoordinatorLed},
		"jobs of v1.1.3":                       {"DIJob", []apiextensionsv1.CustomResourceDefinitionVersion{known("v2alpha1", "tasks", "preemptible")}, crds.OriginWorkerLed},
		"jobs of v1.0.0":                       {"DIJob", []apiextensionsv1.CustomResourceDefinitionVersion{known("v2alpha1", "template", "group")}, crds.OriginBeforeTasks},
		"a v2alpha1 whose schema is anybody's": {"DIJob", []apiextensionsv1.CustomResourceDefinitionVersion{known("v2alpha1")}, crds.OriginUnknown},
		"another version":                      {"DIJob", []apiextensionsv1.CustomResourceDefinitionVersion{known("v3", "tasks")}, crds.OriginUnknown},
		"both versions":                        {"DIJob", []apiextensionsv1.CustomResourceDefinitionVersion{known("v1alpha1"), known("v2alpha1")}, crds.OriginOurs},
		"our v2alpha1 alone":                   {"DIJob", []apiextensionsv1.CustomResourceDefinitionVersion{known("v2alpha1", "tasks", "lifecycle")}, crds.OriginOurs},
		"Memberships":                          {"Membership", []apiextensionsv1.CustomResourceDefinitionVersion{known("v2alpha1", "members")}, crds.OriginOurs},
	} {
		t.Run(name, func(t *testing.T) {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			definition.Spec.Names.Kind, definition.Spec.Versions = tc.kind, tc.versions
			NewWithT(t).Expect(crds.OriginOf(definition)).To(Equal(tc.want))
		})
	}
}

func TestTheDefinitionsOfThisProgramAreItsOwn(t *testing.T) {
	for _, content := range crd.All() {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		expect.NoError(t, yaml.Unmarshal(content, definition))
		NewWithT(t).Expect(crds.OriginOf(definition)).To(Equal(crds.OriginOurs), definition.Name)
	}
}

func TestNoDefinitionIsOfNobody(t *testing.T) {
	NewWithT(t).Expect(crds.OriginOf(nil)).To(Equal(crds.OriginNone))
}
