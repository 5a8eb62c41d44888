// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// paths says where the version that the user wrote has what the hub's form
// calls by another name.
type paths interface {
	// spec returns the path of a field of the spec.
	spec(name string) *field.Path
	// task returns the path of a field of the i-th task.
	task(i int, name string) *field.Path
}

// hubPaths are those of v2alpha1.
type hubPaths struct{}

func (hubPaths) spec(name string) *field.Path {
	return field.NewPath("spec", name)
}

func (hubPaths) task(i int, name string) *field.Path {
	return field.NewPath("spec", "tasks").Index(i).Child(name)
}

// v1Paths are those of v1alpha1: its own fields, and the rest in extended.
type v1Paths struct {
	job *v2alpha1.DIJob
}

func (p v1Paths) spec(name string) *field.Path {
	spec := field.NewPath("spec")
	switch {
	case name == "group", name == "priorityClassName", name == "cleanPodPolicy", name == "volumes":
		return spec.Child(name)
	case name == "tasks" && coordinatorLed(&p.job.Spec):
		return spec.Child(string(v2alpha1.TaskTypeCoordinator))
	}
	return spec.Child("extended", name)
}

func (p v1Paths) task(i int, name string) *field.Path {
	spec := field.NewPath("spec")
	switch role := p.job.Spec.Tasks[i].Type; role {
	case v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner:
		if name == "template" && coordinatorLed(&p.job.Spec) {
			return spec.Child(string(role), name)
		}
	default:
		// v1alpha1 has no field for it.
	}
	return spec.Child("extended", "tasks").Index(i).Child(name)
}

// validateV2 validates a job that was written through v2alpha1.
func validateV2(asked *question) field.ErrorList {
	return validateChange(asked, hubPaths{}, hubPaths{})
}

// validateV1 validates a job that was written through v1alpha1.
func validateV1(asked *question) field.ErrorList {
	if asked.subresource == subresourceStatus {
		return fits(members(members(asked.raw)["status"])["extended"], field.NewPath("status", "extended"), &v2alpha1.DIJobStatus{})
	}
	extended := members(members(asked.raw)["spec"])["extended"]
	errs := fits(extended, field.NewPath("spec", "extended"), &v2alpha1.DIJobSpec{})
	if asked.create {
		return append(errs, validateChange(asked, v1Paths{asked.job}, nil)...)
	}
	if !coordinatorLed(&asked.old.Spec) && !sameValue(members(asked.raw)["spec"], members(asked.oldRaw)["spec"]) {
		return append(errs, field.Forbidden(field.NewPath("spec"),
			"this job is led by its workers: v1alpha1 shows it and cannot change its spec; use v2alpha1, as in "+
				"kubectl edit dijobs.v2alpha1."+v2alpha1.GroupName+" "+asked.job.Name))
	}
	return append(errs, validateChange(asked, v1Paths{asked.job}, v1Paths{asked.old})...)
}

// validateChange returns what is wrong with a new job, or with what an update
// changes: an update is not refused for what was already so.
func validateChange(asked *question, at, oldAt paths) field.ErrorList {
	errs := validateJob(asked.job, at)
	if asked.create {
		return append(errs, validateName(asked.job)...)
	}
	before := map[string]bool{}
	for _, err := range validateJob(asked.old, oldAt) {
		before[err.Error()] = true
	}
	var added field.ErrorList
	for _, err := range errs {
		if !before[err.Error()] {
			added = append(added, err)
		}
	}
	return append(added, validateImmutable(asked, at)...)
}

func validateImmutable(asked *question, at paths) field.ErrorList {
	var errs field.ErrorList
	job, old := &asked.job.Spec, &asked.old.Spec
	if coordinatorLed(job) != coordinatorLed(old) {
		errs = append(errs, field.Invalid(at.spec("lifecycle"), job.Lifecycle, "is immutable: make another job instead"))
	}
	if !reflect.DeepEqual(job.ManagedBy, old.ManagedBy) {
		errs = append(errs, field.Invalid(at.spec("managedBy"), job.ManagedBy, "is immutable"))
	}
	return errs
}

// fits says whether v2alpha1 can hold what extended says: the conversion drops
// the rest.
func fits(extended json.RawMessage, at *field.Path, into any) field.ErrorList {
	if !isSet(extended) {
		return nil
	}
	strict, err := kjson.UnmarshalStrict(extended, into)
	if err != nil {
		strict = []error{err}
	}
	var errs field.ErrorList
	for _, cause := range strict {
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "must be fields of v2alpha1: "+cause.Error()))
	}
	return errs
}

// sameValue says whether two JSON values mean the same.
func sameValue(a, b json.RawMessage) bool {
	var decodedA, decodedB any
	// Absent values stay nil; others were decoded as parts of their objects.
	_ = json.Unmarshal(a, &decodedA)
	_ = json.Unmarshal(b, &decodedB)
	return reflect.DeepEqual(decodedA, decodedB)
}
