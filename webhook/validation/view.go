// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// Schema is the schema of v2alpha1 in the CRD. crdschema.New compiles it.
type Schema interface {
	// PruneNulls removes the null members that the API server removes before it validates.
	PruneNulls(job map[string]any)
	// Validate returns the violations of the schema. The old job is nil for a new one.
	Validate(job, old map[string]any) field.ErrorList
}

// validateSchema returns the violations of the v2alpha1 schema by a job that was written through
// v1alpha1, with their paths in v1alpha1. No update is rejected for violations that the stored job
// already has.
func validateSchema(schema Schema, request *Request) field.ErrorList {
	job, err := hubValues(request.Raw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	old, err := hubValues(request.OldRaw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	schema.PruneNulls(job)
	schema.PruneNulls(old)
	errs := schema.Validate(job, old)
	if len(errs) > 0 && old != nil {
		errs = less(errs, schema.Validate(old, old))
	}
	for _, err := range errs {
		path := translate(err.Field, v1Paths{request.Job})
		// Some messages repeat the path.
		if rest, ok := strings.CutPrefix(err.Detail, err.Field+" "); ok {
			err.Detail = path + " " + rest
		}
		err.Field = path
	}
	return errs
}

// hubValues returns a job of either version in the hub's form, and nil if there is no job.
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

// PathInV1 returns the path in v1alpha1 of a field of a job in v2alpha1.
func PathInV1(path string, job *v2alpha1.DIJob) string {
	return translate(path, v1Paths{job})
}

// translate returns the path in v1alpha1 of a field of the hub.
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

// taskPath splits a path such as tasks[2].name.
func taskPath(path string) (index int, below string, ok bool) {
	rest, ok := strings.CutPrefix(path, "tasks[")
	number, below, closed := strings.Cut(rest, "].")
	index, err := strconv.Atoi(number)
	return index, below, ok && closed && err == nil
}

// cutField splits a path after its first field.
func cutField(path string) (name, below string) {
	if i := strings.IndexAny(path, ".["); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

const fieldExtended = "extended"

// validateExtended returns errors for values of extended that do not fit v2alpha1's types. The
// conversion would drop them.
func validateExtended(request *Request) field.ErrorList {
	if request.Subresource == subresourceStatus {
		status := jsontype.Members(jsontype.Members(request.Raw)["status"])
		return fits(status[fieldExtended], field.NewPath("status", fieldExtended), reflect.TypeFor[v2alpha1.DIJobStatus]())
	}
	spec := jsontype.Members(jsontype.Members(request.Raw)["spec"])
	return fits(spec[fieldExtended], field.NewPath("spec", fieldExtended), reflect.TypeFor[v2alpha1.DIJobSpec]())
}

// fits returns errors for the values of extended that do not fit the type of v2alpha1.
func fits(extended json.RawMessage, at *field.Path, goType reflect.Type) field.ErrorList {
	if !jsontype.IsSet(extended) {
		return nil
	}
	found := jsontype.Compare(extended, goType, at)
	errs := found.Mistyped
	for _, path := range found.Unknown {
		errs = append(errs, &field.Error{
			Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("unknown field: %s has only fields of v2alpha1", at),
		})
	}
	return errs
}

// validateKept returns errors for fields that the conversion would lose: they are set twice, or
// v1alpha1 has no such field. Without extended nothing is lost. validateView checks worker-led
// jobs.
func validateKept(request *Request) field.ErrorList {
	if request.Subresource == subresourceStatus || !jsontype.IsSet(jsontype.Members(jsontype.Members(request.Raw)["spec"])[fieldExtended]) ||
		!request.Create && !coordinatorLed(&request.Job.Spec) {
		return nil
	}
	paths, err := conversion.Lost(request.Raw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	// Only a write of the status subresource writes a status.
	paths = slices.DeleteFunc(paths, func(path string) bool { return !strings.HasPrefix(path, "spec.") })
	var errs field.ErrorList
	for _, path := range paths {
		errs = append(errs, &field.Error{Type: field.ErrorTypeForbidden, Field: path, Detail: "would be lost: " + rightPlace(path, &request.Job.Spec)})
	}
	return errs
}

// rightPlace returns the path at which a job must set the value that is lost at another path.
func rightPlace(path string, spec *v2alpha1.DIJobSpec) string {
	inExtended, isExtended := strings.CutPrefix(path, "spec.extended.")
	name, _ := cutField(inExtended)
	switch {
	case !isExtended && !coordinatorLed(spec):
		return "spec.extended.lifecycle makes the job worker-led, so its tasks exist only in v2alpha1: write the job in that version"
	case name == "tasks":
		return "v1alpha1 has one field for each role: spec.coordinator, spec.collector and spec.learner"
	case isExtended:
		return "v1alpha1 has it in spec." + name
	}
	return "v1alpha1 and v2alpha1 have no such field"
}
