// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Rules is what admission holds new objects to, without an API server: to look
// at stored ones that were never asked about.
type Rules struct {
	schema *hubSchema
}

// NewRules reads the rules that the schema has.
func NewRules() (*Rules, error) {
	schema, err := newHubSchema()
	if err != nil {
		return nil, err
	}
	return &Rules{schema: schema}, nil
}

// Refusals returns why a job, which is JSON of either version, would be refused
// if it were created as it is stored. As an update is not refused for what was
// already so, such a job may still be changed. It fails for what is no job.
func (r *Rules) Refusals(raw []byte) (field.ErrorList, error) {
	asked := &question{create: true, raw: raw}
	if errs := mistyped(raw); len(errs) > 0 {
		return errs, nil
	}
	var err error
	if asked.job, err = decodeHub(raw); err != nil {
		return nil, fmt.Errorf("reading a job: %w", err)
	}
	if writtenInV2(raw) {
		return inTurn(r.validateHub, validateV2)(asked), nil
	}
	return inTurn(validateExtended, r.schema.validate, validateV1)(asked), nil
}

// validateHub is what the API server holds a job of v2alpha1 to.
func (r *Rules) validateHub(asked *question) field.ErrorList {
	job, err := hubValues(asked.raw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return r.schema.errors(job, nil)
}

// AggregatorRefusals returns the same of an AggregatorConfig of either version.
func (r *Rules) AggregatorRefusals(raw []byte) (field.ErrorList, error) {
	template, err := aggregatorTemplate(raw)
	if err != nil {
		return nil, err
	}
	return validateTemplate(template, field.NewPath("spec", "aggregator", "template")), nil
}
