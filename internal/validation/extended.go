// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
)

const fieldExtended = "extended"

// validateExtended returns what extended says that the types of v2alpha1 cannot
// hold, which the conversion would drop.
func validateExtended(request *Request) field.ErrorList {
	if request.Subresource == subresourceStatus {
		status := members(members(request.Raw)["status"])
		return fits(status[fieldExtended], field.NewPath("status", fieldExtended), reflect.TypeFor[v2alpha1.DIJobStatus]())
	}
	spec := members(members(request.Raw)["spec"])
	return fits(spec[fieldExtended], field.NewPath("spec", fieldExtended), reflect.TypeFor[v2alpha1.DIJobSpec]())
}

// fits says what of extended the type of v2alpha1 cannot hold.
func fits(extended json.RawMessage, at *field.Path, goType reflect.Type) field.ErrorList {
	if !isSet(extended) {
		return nil
	}
	found := compare(extended, goType, at)
	errs := found.mistyped
	for _, path := range found.unknown {
		errs = append(errs, &field.Error{
			Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("unknown field: %s holds the fields of v2alpha1, of which this is none", at),
		})
	}
	return errs
}

// validateKept returns what a job says twice, or at a place that it does not
// have, and the conversion would not keep. Without extended nothing is lost, and
// what is shown of a job that is led by its workers was held to be as it was.
func validateKept(request *Request) field.ErrorList {
	if request.Subresource == subresourceStatus || !isSet(members(members(request.Raw)["spec"])[fieldExtended]) ||
		!request.Create && !coordinatorLed(&request.Job.Spec) {
		return nil
	}
	paths, err := conversion.Lost(request.Raw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	// Only a write of the status writes one.
	paths = slices.DeleteFunc(paths, func(path string) bool { return !strings.HasPrefix(path, "spec.") })
	var errs field.ErrorList
	for _, path := range paths {
		errs = append(errs, &field.Error{Type: field.ErrorTypeForbidden, Field: path, Detail: "would be lost: " + rightPlace(path, &request.Job.Spec)})
	}
	return errs
}

// rightPlace says where a job is to say what is lost at a path.
func rightPlace(path string, spec *v2alpha1.DIJobSpec) string {
	inExtended, isExtended := strings.CutPrefix(path, "spec.extended.")
	name, _ := cutField(inExtended)
	switch {
	case !isExtended && !coordinatorLed(spec):
		return "spec.extended.lifecycle says that the job is led by its workers, which are the tasks of v2alpha1: write the job in that version"
	case name == "tasks":
		return "in v1alpha1 each role has a field of its own, spec.coordinator, spec.collector and spec.learner"
	case isExtended:
		return "v1alpha1 says it in spec." + name
	}
	return "v1alpha1 and v2alpha1 have no such field"
}
