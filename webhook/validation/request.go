// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

const subresourceStatus = "status"

// Request is an admission request for a job. It contains the object and, for an update, the object
// that it replaces, each as it was sent and in the hub's form.
type Request struct {
	// Create is true for a new object.
	Create      bool
	Subresource string
	Raw, OldRaw []byte
	Job, Old    *v2alpha1.DIJob
	Bounds
	// FieldManager is the field manager that the writer names, "" if it names none.
	FieldManager string
	// ByAutoscaler is set if the operator's autoscaler is the writer, by its account.
	ByAutoscaler bool
	// Left returns an error once the caller has disconnected. It is nil if no caller waits.
	Left func() error
}

// Bounds limit the size of a job.
type Bounds struct {
	// MaxPods is the maximum number of pods of a job. 0 means limits.PodsPerJob.
	MaxPods int32
	// Domain is the domain of the cluster's services, which the addresses of pods contain. Empty
	// means names.DefaultDomain.
	Domain string
}

// Decode decodes the objects of a request, unless the caller has disconnected. A stored object that
// does not decode is not an error, because an update may repair it.
func (r *Request) Decode() error {
	var err error
	if r.Job, err = decodeHub(r.Raw); err != nil {
		return fmt.Errorf("object: %w", err)
	}
	if r.Create || r.HasLeft() {
		return nil
	}
	if r.Old, err = decodeHub(r.OldRaw); r.Old == nil {
		return fmt.Errorf("oldObject: %w", err)
	}
	return nil
}

// HasLeft reports whether the caller has disconnected and reads no answer.
func (r *Request) HasLeft() bool {
	return r.Left != nil && r.Left() != nil
}

// decodeHub decodes a job of either version in the hub's form. If a value does not
// fit, it returns the rest of the job with the error.
func decodeHub(raw []byte) (*v2alpha1.DIJob, error) {
	converted, err := conversion.Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	job := &v2alpha1.DIJob{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(converted, job); err != nil {
		return job, fmt.Errorf("decoding the job: %w", err)
	}
	return job, nil
}

// IsObject reports whether JSON is an object.
func IsObject(raw []byte) bool {
	return jsontype.Members(raw) != nil
}

// Mistyped returns errors for the values of a job that do not fit the Go type of its version. If there are any, it
// also returns the errors of its templates and volumes, so that their author learns of all at once.
func Mistyped(raw []byte) field.ErrorList {
	goType := reflect.TypeFor[v1alpha1.DIJob]()
	if writtenInV2(raw) {
		goType = reflect.TypeFor[v2alpha1.DIJob]()
	}
	found, rest := jsontype.Fit(raw, goType, nil)
	if len(found.Mistyped) == 0 {
		return nil
	}
	return append(found.Mistyped, found.Beside(validateRest(rest))...)
}

// validateRest returns the errors of templates and volumes of a job without its mistyped values.
func validateRest(raw []byte) field.ErrorList {
	job, err := decodeHub(raw)
	if err != nil || len(CheckLists(&Request{Create: true, Raw: raw, Job: job})) > 0 {
		return nil
	}
	at := pathsOf(raw, job)
	errs := validateVolumes(&job.Spec, at)
	for i := range job.Spec.Tasks {
		if full(errs) {
			break
		}
		errs = append(errs, validateTemplate(job.Spec.Tasks[i].Template.Raw, at.task(i, "template"))...)
	}
	return errs
}

// Patch is a JSON patch with the defaults and nothing else. Encoding the decoded job instead would
// drop fields that its type does not know.
type Patch []jsonpatch.Operation

// set adds or replaces the member at the path, whose parent must exist.
func (p *Patch) set(path string, value any) {
	*p = append(*p, jsonpatch.NewOperation("add", path, value))
}

// remove removes the member at the path, which must exist.
func (p *Patch) remove(path string) {
	*p = append(*p, jsonpatch.NewOperation("remove", path, nil))
}

// Rules are the rules that need the schema.
type Rules struct {
	schema Schema
	bounds Bounds
}

// NewRules returns the rules for a schema and bounds.
func NewRules(schema Schema, bounds Bounds) *Rules {
	return &Rules{schema: schema, bounds: bounds}
}

// ValidateV1 validates a job that is written through v1alpha1. Each validation requires that the
// previous ones passed.
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

// Refusals returns why a stored job, which is JSON of either version, would be rejected if it were
// created. Such a job can still be changed, because no update is rejected for errors that the
// stored job already has. It fails if the JSON is not a job.
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

// AggregatorRefusals does the same for an AggregatorConfig of either version.
func (r *Rules) AggregatorRefusals(raw []byte) (field.ErrorList, error) {
	template, err := aggregatorTemplate(raw)
	if err != nil {
		return nil, err
	}
	return validateTemplate(template, field.NewPath("spec", "aggregator", "template")), nil
}
