// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/validation/jsontype"
	"opendilab.org/di-orchestrator/internal/validation/semantic"
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
func validateV2(request *Request) field.ErrorList {
	return validateChange(request, hubPaths{}, hubPaths{})
}

// validateV1 validates a job that was written through v1alpha1.
func validateV1(request *Request) field.ErrorList {
	if request.Subresource == subresourceStatus {
		return nil
	}
	if request.Create {
		if !jsontype.IsSet(jsontype.Members(request.Raw)["spec"]) {
			return field.ErrorList{field.Required(field.NewPath("spec", string(v2alpha1.TaskTypeCoordinator)), "a job needs something to run")}
		}
		return validateChange(request, v1Paths{request.Job}, nil)
	}
	return validateChange(request, v1Paths{request.Job}, v1Paths{request.Old})
}

// validateView holds that a job that is led by its workers is not changed
// through v1alpha1, which shows it and cannot say what it is.
func validateView(request *Request) field.ErrorList {
	if request.Create || request.Subresource == subresourceStatus || coordinatorLed(&request.Old.Spec) ||
		sameView(jsontype.Members(request.Raw)["spec"], jsontype.Members(request.OldRaw)["spec"]) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"),
		"this job is worker-led: v1alpha1 shows it and cannot change its spec; use v2alpha1, as in "+
			"kubectl edit dijobs.v2alpha1."+v2alpha1.GroupName+" "+request.Job.Name)}
}

// sameView reports whether two specs of v1alpha1 show the same job. The templates
// of its roles are shown only and not read back, so they are the same where
// they mean the same: typed clients write them again.
func sameView(a, b json.RawMessage) bool {
	fieldsOfA, fieldsOfB := jsontype.Members(a), jsontype.Members(b)
	for _, role := range []v2alpha1.TaskType{v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		templateOfA, templateOfB := jsontype.Members(fieldsOfA[string(role)])["template"], jsontype.Members(fieldsOfB[string(role)])["template"]
		if !jsontype.EqualButEmpty(templateOfA, templateOfB) &&
			!semantic.SamePods(templateOfA, templateOfB) {
			return false
		}
		delete(fieldsOfA, string(role))
		delete(fieldsOfB, string(role))
	}
	return sameFields(fieldsOfA, fieldsOfB)
}

// sameFields reports whether members that are read back are the same in two specs. Typed clients
// write empty members for what they did not find; what is within a member counts to the letter, as
// an empty selector is another than none.
func sameFields(a, b map[string]json.RawMessage) bool {
	for key := range a {
		if !sameField(key, a[key], b[key]) {
			return false
		}
	}
	for key := range b {
		if _, both := a[key]; !both && !sameField(key, nil, b[key]) {
			return false
		}
	}
	return true
}

func sameField(key string, a, b json.RawMessage) bool {
	// Members of what was decoded decode again; absent ones stay nil.
	valueOfA, _ := jsontype.DecodeAny(a)
	valueOfB, _ := jsontype.DecodeAny(b)
	switch {
	case jsontype.IsEmpty(valueOfA) || valueOfA == "":
		return jsontype.IsEmpty(valueOfB) || valueOfB == ""
	case reflect.DeepEqual(valueOfA, valueOfB):
		return true
	case key != "volumes":
		return false
	}
	var volumesOfA, volumesOfB []v2alpha1.RawObject
	if json.Unmarshal(a, &volumesOfA) != nil || json.Unmarshal(b, &volumesOfB) != nil {
		return false
	}
	return semantic.SameVolumes(volumesOfA, volumesOfB)
}

// inTurn asks one validation after the other, until one finds an error: each is
// for jobs that the ones before it have passed. It stops once nobody waits any more.
func inTurn(validations ...func(*Request) field.ErrorList) func(*Request) field.ErrorList {
	return func(request *Request) field.ErrorList {
		for _, validate := range validations {
			if request.HasLeft() {
				return nil
			}
			if errs := validate(request); len(errs) > 0 {
				return errs
			}
		}
		return nil
	}
}

// validateChange returns what is wrong with a new job, or with what an update
// changes: an update is not refused for what was already so.
func validateChange(request *Request, at, oldAt paths) field.ErrorList {
	errs := append(validateContent(request.Job, at), validateSize(request.Job, at, request.Bounds)...)
	if request.Create {
		return append(errs, validateName(request.Job)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return lessByTask(errs, append(validateContent(request.Old, oldAt), validateSize(request.Old, oldAt, request.Bounds)...), request)
}

// lessByTask is less where tasks go by their names: one that is moved is as faulty as it was.
func lessByTask(errs, others field.ErrorList, request *Request) field.ErrorList {
	before := map[string]int{}
	for _, err := range others {
		before[byTask(err, &request.Old.Spec)]++
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		// Tasks may share a name, and then each has its own fault.
		before[byTask(err, &request.Job.Spec)]--
		return before[byTask(err, &request.Job.Spec)] >= 0
	})
}

// byTask returns an error with the names of tasks in place of their indexes.
func byTask(err *field.Error, spec *v2alpha1.DIJobSpec) string {
	const list = "tasks["
	before, rest, found := strings.Cut(err.Error(), list)
	digits, after, _ := strings.Cut(rest, "]")
	index, failed := strconv.Atoi(digits)
	if !found || failed != nil || index >= len(spec.Tasks) {
		return err.Error()
	}
	return before + list + names.TaskName(&spec.Tasks[index]) + "]" + after
}

// validateSize holds that the job has no more pods than one may have, and that
// these can be told of each other.
func validateSize(job *v2alpha1.DIJob, at paths, within Bounds) field.ErrorList {
	errs := validateCounts(&job.Spec, at, within.MaxPods)
	if len(errs) > 0 || coordinatorLed(&job.Spec) {
		return errs
	}
	return validateAddresses(job, at, within.Domain)
}

// validateCounts holds that the job has no more pods than one may have, now or once it
// is resized.
func validateCounts(spec *v2alpha1.DIJobSpec, at paths, most int32) field.ErrorList {
	var errs field.ErrorList
	for _, each := range limits.CheckCounts(spec, cmp.Or(most, limits.PodsPerJob)) {
		var path *field.Path
		if each.Task >= 0 {
			path = at.task(each.Task, each.Field[0])
		} else {
			path = at.spec(each.Field[0])
		}
		if rest := each.Field[1:]; len(rest) > 0 {
			path = path.Child(rest[0], rest[1:]...)
		}
		errs = append(errs, field.Invalid(path, each.Value, each.Want))
	}
	return errs
}

// less returns those of the errors that are not among the others.
func less(errs, others field.ErrorList) field.ErrorList {
	before := map[string]bool{}
	for _, err := range others {
		before[err.Error()] = true
	}
	var rest field.ErrorList
	for _, err := range errs {
		if !before[err.Error()] {
			rest = append(rest, err)
		}
	}
	return rest
}

// validateContent returns all that is wrong with a job and what it holds of
// other APIs, whatever it was before.
func validateContent(job *v2alpha1.DIJob, at paths) field.ErrorList {
	return append(validateJob(job, at), validateVolumes(&job.Spec, at)...)
}
