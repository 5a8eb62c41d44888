// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crdschema validates DIJobs by the schema of v2alpha1 in the CRD, with the API server's
// own code. The API server applies the schema to jobs that are written through v2alpha1. It
// converts jobs that are written through v1alpha1 after all its checks, so the webhooks apply the
// same schema to them. Every range and rule therefore has one source.
package crdschema

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/config/crd"
)

// Schema is the compiled schema of v2alpha1.
type Schema struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// New compiles the schema in the CRD.
func New() (*Schema, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(crd.DIJobs(), definition); err != nil {
		return nil, fmt.Errorf("reading the CRD: %w", err)
	}
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		if version.Name == v2alpha1.Version && version.Schema != nil {
			return compile(version.Schema.OpenAPIV3Schema)
		}
	}
	return nil, errors.New("reading the CRD: it has no schema of " + v2alpha1.Version)
}

func compile(published *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(published, props, nil); err != nil {
		return nil, fmt.Errorf("reading the schema of the CRD: %w", err)
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("reading the schema of the CRD: %w", err)
	}
	values, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema of the CRD: %w", err)
	}
	return &Schema{structural: structural, values: values, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// PruneNulls removes the null members that the API server removes before it validates.
func (s *Schema) PruneNulls(job map[string]any) {
	defaulting.PruneNonNullableNullsWithoutDefaults(job, s.structural)
}

// Validate returns the violations of the schema. The old job is nil for a new one.
func (s *Schema) Validate(job, old map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, job, s.values)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, job)...)
	if len(errs) > 0 {
		// The rules require values of the right types.
		return errs
	}
	var before any
	if old != nil {
		before = old
	}
	broken, _ := s.rules.Validate(context.Background(), nil, s.structural, job, before, celconfig.RuntimeCELCostBudget)
	return broken
}
