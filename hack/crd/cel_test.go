// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// oldestKubernetes is the oldest supported release for the CRDs.
var oldestKubernetes = version.MajorMinor(1, 30)

// The API server rejects a CRD if the estimated worst-case cost of its rules exceeds 10 million
// units for an expression or 100 million for a CRD. The budget is a thousandth of that: no release
// of Kubernetes with a different estimate rejects these CRDs, and no rule delays a user's write.
const (
	maxExpressionCost = validation.StaticEstimatedCostLimit / 1000
	maxCRDCost        = validation.StaticEstimatedCRDCostLimit / 1000
)

func TestTheRulesOfTheSchemasCompileOnTheOldestKubernetesWithinTheBudget(t *testing.T) {
	t.Parallel()
	for resource, rules := range map[string]bool{"dijobs": true, "aggregatorconfigs": false, "memberships": false, "scaleplans": true} {
		crd, _ := readCRD(t, resource)
		total := uint64(0)
		for i := range crd.Spec.Versions {
			schema := &apiextensions.JSONSchemaProps{}
			expect.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
				crd.Spec.Versions[i].Schema.OpenAPIV3Schema, schema, nil))
			total += costOf(t, resource+" "+crd.Spec.Versions[i].Name, schema, validation.RootCELContext(schema))
		}
		if total > maxCRDCost {
			t.Errorf("the rules of %s may cost %d, more than the budget of %d", resource, total, maxCRDCost)
		}
		if rules != (total > 0) {
			t.Errorf("the rules of %s may cost %d; are there any: %v", resource, total, rules)
		}
		t.Logf("%s: the rules may cost %d of %d", resource, total, maxCRDCost)
	}
}

// costOf returns the maximum cost of the rules of a schema, including nested ones.
func costOf(t *testing.T, path string, schema *apiextensions.JSONSchemaProps, context *validation.CELSchemaContext) uint64 {
	t.Helper()
	total := uint64(0)
	if len(schema.XValidations) > 0 {
		total += costHere(t, path, schema, context)
	}
	for name := range schema.Properties {
		property := schema.Properties[name]
		total += costOf(t, path+"."+name, &property, context.ChildPropertyContext(&property, name))
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		total += costOf(t, path+"[]", schema.Items.Schema, context.ChildItemsContext(schema.Items.Schema))
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		child := schema.AdditionalProperties.Schema
		total += costOf(t, path+"{}", child, context.ChildAdditionalPropertiesContext(child))
	}
	return total
}

// costHere returns the maximum cost of the rules of one schema node, for all its values in an
// object together.
func costHere(t *testing.T, path string, schema *apiextensions.JSONSchemaProps, context *validation.CELSchemaContext) uint64 {
	t.Helper()
	info, err := context.TypeInfo()
	if err != nil || info == nil {
		t.Fatalf("%s: no type: %v", path, err)
	}
	compiled, err := cel.Compile(info.Schema, info.DeclType, celconfig.PerCallLimit,
		environment.MustBaseEnvSet(oldestKubernetes), cel.NewExpressionsEnvLoader())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if context.MaxCardinality == nil {
		t.Fatalf("%s is in a list or map without a bound, so nothing bounds the cost of its rules", path)
	}
	total := uint64(0)
	for i := range compiled {
		rule := schema.XValidations[i].Rule
		if compiled[i].Error != nil || compiled[i].MessageExpressionError != nil {
			t.Errorf("%s: %q does not compile on Kubernetes %s: %v, %v", path, rule, oldestKubernetes, compiled[i].Error, compiled[i].MessageExpressionError)
		}
		ruleCost, messageCost := compiled[i].MaxCost**context.MaxCardinality, compiled[i].MessageExpressionMaxCost
		cost := ruleCost + messageCost
		if cost > maxExpressionCost {
			t.Errorf("%s: %q may cost %d, more than the budget of %d", path, rule, cost, maxExpressionCost)
		}
		total += cost
		t.Logf("%7d, and %7d to say so, %s: %s", ruleCost, messageCost, path, rule)
	}
	return total
}
