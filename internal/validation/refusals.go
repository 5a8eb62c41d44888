// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Rules are the rules that need the schema.
type Rules struct {
	schema Schema
	bounds Bounds
}

// NewRules returns the rules for a schema and bounds.
func NewRules(schema Schema, bounds Bounds) *Rules {
	return &Rules{schema: schema, bounds: bounds}
}

// ValidateV1 validates a job that is written through v1alpha1. Each validation is for
// jobs that passed the ones before.
func (r *Rules) ValidateV1(request *Request) field.ErrorList {
	request.Bounds = r.bounds
	return inTurn(validateView, validateExtended, r.validateSchema, validateKept, validateV1)(request)
}

// ValidateV2 validates a job that is written through v2alpha1.
func (r *Rules) ValidateV2(request *Request) field.ErrorList {
	request.Bounds = r.bounds
	return validateV2(request)
}

func (r *Rules) validateSchema(request *Request) field.ErrorList {
	return validateSchema(r.schema, request)
}

// Refusals returns why a stored job, which is JSON of either version, would be refused
// if it were created. Because an update does not inherit errors, such a job can still
// be changed. It fails if the JSON is no job.
func (r *Rules) Refusals(raw []byte) (field.ErrorList, error) {
	request := &Request{Create: true, Raw: raw, Bounds: r.bounds}
	if errs := Mistyped(raw); len(errs) > 0 {
		return errs, nil
	}
	var err error
	if request.Job, err = decodeHub(raw); err != nil {
		return nil, fmt.Errorf("reading a job: %w", err)
	}
	if writtenInV2(raw) {
		return inTurn(r.validateHub, validateV2)(request), nil
	}
	return inTurn(validateExtended, r.validateSchema, validateV1)(request), nil
}

// validateHub applies the schema to a job of v2alpha1, as the API server does.
func (r *Rules) validateHub(request *Request) field.ErrorList {
	job, err := hubValues(request.Raw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return r.schema.Validate(job, nil)
}

// AggregatorRefusals returns the same for an AggregatorConfig of either version.
func (r *Rules) AggregatorRefusals(raw []byte) (field.ErrorList, error) {
	template, err := aggregatorTemplate(raw)
	if err != nil {
		return nil, err
	}
	return validateTemplate(template, field.NewPath("spec", "aggregator", "template")), nil
}
