// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// maxCRDBytes is the maximum size of kubectl apply's annotation of the last applied configuration.
const maxCRDBytes = 256 << 10

func readCRD(t *testing.T, resource string) (*apiextensionsv1.CustomResourceDefinition, []byte) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", v2alpha1.GroupName+"_"+resource+".yaml"))
	expect.NoError(t, err)
	asJSON, err := yaml.YAMLToJSON(raw)
	expect.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	expect.NoError(t, json.Unmarshal(asJSON, crd))
	return crd, asJSON
}

func TestDIJobsServeBothVersionsWithinTheBudget(t *testing.T) {
	t.Parallel()
	crd, asJSON := readCRD(t, "dijobs")
	if len(asJSON) > maxCRDBytes {
		t.Errorf("the CRD is %d bytes as JSON, more than the %d that kubectl apply can install", len(asJSON), maxCRDBytes)
	}
	type facts struct {
		Served, Stored, Status bool
		Scale                  *apiextensionsv1.CustomResourceSubresourceScale
		Columns                []string
	}
	selector, columns := ".status.selector", []string{"Phase", "Ready", "Reason", "Restarts", "Duration", "Age"}
	want := map[string]facts{
		v1alpha1.Version: {Served: true, Status: true, Columns: columns},
		v2alpha1.Version: {Served: true, Stored: true, Status: true,
			Scale: &apiextensionsv1.CustomResourceSubresourceScale{
				SpecReplicasPath: ".spec.elastic.replicas", StatusReplicasPath: ".status.elasticReplicas", LabelSelectorPath: &selector,
			},
			Columns: columns},
	}
	got := map[string]facts{}
	for _, version := range crd.Spec.Versions {
		fact := facts{Served: version.Served, Stored: version.Storage,
			Status: version.Subresources.Status != nil, Scale: version.Subresources.Scale}
		for _, column := range version.AdditionalPrinterColumns {
			// Columns of the wide form are not part of the contract.
			if column.Priority > 0 {
				continue
			}
			fact.Columns = append(fact.Columns, column.Name)
		}
		got[version.Name] = fact
	}
	expect.Equal(t, "versions", want, got)
	expect.Equal(t, "short names", []string{"dijob", "dj"}, crd.Spec.Names.ShortNames)
}

func TestDIJobsAreConvertedByTheWebhookFromTheFirstApply(t *testing.T) {
	t.Parallel()
	crd, _ := readCRD(t, "dijobs")
	path, port := "/convert", int32(443)
	want := &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
				Namespace: "di-system", Name: "di-orchestrator-webhook", Path: &path, Port: &port,
			}},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	expect.Equal(t, "conversion", want, crd.Spec.Conversion)
}

func TestTheOtherKindsNeedNoConversion(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"aggregatorconfigs", "memberships", "scaleplans"} {
		if crd, _ := readCRD(t, resource); crd.Spec.Conversion != nil {
			t.Errorf("%s have a conversion: %+v", resource, crd.Spec.Conversion)
		}
	}
}

func TestNoSchemaHasADefault(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"dijobs", "aggregatorconfigs", "memberships"} {
		crd, _ := readCRD(t, resource)
		for _, version := range crd.Spec.Versions {
			noDefault(t, resource+" "+version.Name, version.Schema.OpenAPIV3Schema)
		}
	}
}

func noDefault(t *testing.T, path string, schema *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if schema.Default != nil {
		t.Errorf("%s has the default %s, which would surface in the other version", path, schema.Default.Raw)
	}
	for name := range schema.Properties {
		property := schema.Properties[name]
		noDefault(t, path+"."+name, &property)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		noDefault(t, path+"[]", schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		noDefault(t, path+"{}", schema.AdditionalProperties.Schema)
	}
}
