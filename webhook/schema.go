// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/config/crd"
	"opendilab.org/di-orchestrator/conversion"
)

// hubSchema is the schema of v2alpha1, as the CRD has it. The API server holds
// to it what is written through v2alpha1. What is written through v1alpha1 it
// converts after all checks, so here it is held to the same schema, by the same
// code: one source for every range and rule.
type hubSchema struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// newHubSchema reads the schema from the CRD.
func newHubSchema() (*hubSchema, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(crd.DIJobs(), definition); err != nil {
		return nil, fmt.Errorf("reading the CRD: %w", err)
	}
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		if version.Name == v2alpha1.Version && version.Schema != nil {
			return compileSchema(version.Schema.OpenAPIV3Schema)
		}
	}
	return nil, errors.New("reading the CRD: it has no schema of " + v2alpha1.Version)
}

func compileSchema(published *apiextensionsv1.JSONSchemaProps) (*hubSchema, error) {
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
	return &hubSchema{structural: structural, values: values, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// validate returns where a job that was written through v1alpha1 breaks the
// schema of v2alpha1, by its paths in v1alpha1. An update is not refused for
// what was already so.
func (s *hubSchema) validate(asked *question) field.ErrorList {
	job, err := hubValues(asked.raw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	old, err := hubValues(asked.oldRaw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(job, s.structural)
	defaulting.PruneNonNullableNullsWithoutDefaults(old, s.structural)
	errs := s.errors(job, old)
	if len(errs) > 0 && old != nil {
		errs = less(errs, s.errors(old, old))
	}
	for _, err := range errs {
		path := translate(err.Field, v1Paths{asked.job})
		// Some messages repeat the path.
		if rest, ok := strings.CutPrefix(err.Detail, err.Field+" "); ok {
			err.Detail = path + " " + rest
		}
		err.Field = path
	}
	return errs
}

func (s *hubSchema) errors(job, old map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, job, s.values)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, job)...)
	if len(errs) > 0 {
		// Rules are for values of the right types.
		return errs
	}
	var before any
	if old != nil {
		before = old
	}
	broken, _ := s.rules.Validate(context.Background(), nil, s.structural, job, before, celconfig.RuntimeCELCostBudget)
	return broken
}

// hubValues returns a job of either version in the hub's form, as values. There
// are none where there is no job.
func hubValues(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	converted, err := conversion.Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := utiljson.Unmarshal(converted, &values); err != nil {
		return nil, fmt.Errorf("decoding the job: %w", err)
	}
	return values, nil
}

// translate returns where v1alpha1 has a field of the hub.
func translate(path string, at paths) string {
	if rest, ok := strings.CutPrefix(path, "status."); ok && !strings.HasPrefix(rest, "conditions") {
		return "status.extended." + rest
	}
	rest, ok := strings.CutPrefix(path, "spec.")
	if !ok {
		return path
	}
	if index, below, ok := taskPath(rest); ok {
		name, below := cutField(below)
		return at.task(index, name).String() + below
	}
	name, below := cutField(rest)
	return at.spec(name).String() + below
}

// taskPath cuts a path such as tasks[2].name.
func taskPath(path string) (index int, below string, ok bool) {
	rest, ok := strings.CutPrefix(path, "tasks[")
	number, below, closed := strings.Cut(rest, "].")
	index, err := strconv.Atoi(number)
	return index, below, ok && closed && err == nil
}

// cutField cuts a path behind its first field.
func cutField(path string) (name, below string) {
	if i := strings.IndexAny(path, ".["); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}
