// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
)

const fieldExtended = "extended"

// validateExtended returns what extended says that the types of v2alpha1 cannot
// hold, which the conversion would drop.
func validateExtended(asked *question) field.ErrorList {
	if asked.subresource == subresourceStatus {
		status := members(members(asked.raw)["status"])
		return fits(status[fieldExtended], field.NewPath("status", fieldExtended), reflect.TypeFor[v2alpha1.DIJobStatus]())
	}
	spec := members(members(asked.raw)["spec"])
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
// have, and the conversion would not keep. Without extended nothing is lost.
func validateKept(asked *question) field.ErrorList {
	if asked.subresource == subresourceStatus || !isSet(members(members(asked.raw)["spec"])[fieldExtended]) {
		return nil
	}
	paths, err := conversionLoses(asked.raw)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	var errs field.ErrorList
	for _, path := range paths {
		errs = append(errs, &field.Error{Type: field.ErrorTypeForbidden, Field: path, Detail: "would be lost: " + rightPlace(path, &asked.job.Spec)})
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

// conversionLoses returns the paths of what a job of v1alpha1 says and the
// stored form does not keep.
func conversionLoses(raw []byte) ([]string, error) {
	hubRaw, err := conversion.Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	backRaw, err := conversion.Convert(hubRaw, v1alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	spec, hub, back := specValues(raw), specValues(hubRaw), specValues(backRaw)
	at := field.NewPath("spec")
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(spec)) {
		if key != fieldExtended {
			paths = append(paths, missing(spec[key], back[key], at.Child(key))...)
		}
	}
	extended, _ := spec[fieldExtended].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(extended)) {
		at := at.Child(fieldExtended, key)
		if tasks, ok := extended[key].([]any); ok && key == "tasks" && hub["lifecycle"] == string(v2alpha1.LifecycleCoordinatorLed) {
			paths = append(paths, missingTasks(tasks, spec, at)...)
			continue
		}
		paths = append(paths, missing(extended[key], hub[key], at)...)
	}
	return paths, nil
}

// missingTasks returns what listed tasks say that their roles' own fields say too.
func missingTasks(tasks []any, spec map[string]any, at *field.Path) []string {
	var paths []string
	for i, entry := range tasks {
		task, _ := entry.(map[string]any)
		role, _ := task["type"].(string)
		if _, ok := spec[role].(map[string]any); ok && task["template"] != nil {
			paths = append(paths, at.Index(i).Child("template").String())
		}
	}
	return paths
}

func specValues(raw []byte) map[string]any {
	// What was converted is valid.
	value, _ := decodeAny(members(raw)["spec"])
	spec, _ := value.(map[string]any)
	return spec
}

// missing returns the paths of what a value says and the other does not; what
// is null or empty says nothing.
func missing(value, other any, at *field.Path) []string {
	if value = withoutEmpty(value); value == nil || reflect.DeepEqual(value, withoutEmpty(other)) {
		return nil
	}
	object, isObject := value.(map[string]any)
	others, both := other.(map[string]any)
	if !isObject || !both {
		return []string{at.String()}
	}
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		paths = append(paths, missing(object[key], others[key], at.Child(key))...)
	}
	return paths
}
