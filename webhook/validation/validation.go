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
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
	"opendilab.org/di-orchestrator/webhook/validation/semantic"
)

// paths maps fields of the hub's form to paths in the version that the user wrote.
type paths interface {
	// spec returns the path of a field of the spec.
	spec(name string) *field.Path
	// task returns the path of a field of the i-th task.
	task(i int, name string) *field.Path
}

// hubPaths are the paths in v2alpha1.
type hubPaths struct{}

func (hubPaths) spec(name string) *field.Path {
	return field.NewPath("spec", name)
}

func (hubPaths) task(i int, name string) *field.Path {
	return field.NewPath("spec", "tasks").Index(i).Child(name)
}

// v1Paths are the paths in v1alpha1. Fields that v1alpha1 does not have are in extended.
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
		// v1alpha1 has no such field.
	}
	return spec.Child("extended", "tasks").Index(i).Child(name)
}

// validateV2 validates a job that was written through v2alpha1.
func validateV2(request *Request) field.ErrorList {
	return append(validateChange(request, hubPaths{}, hubPaths{}), validateCountsOfRatio(request, hubPaths{})...)
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

// validateView checks that a worker-led job is not changed through v1alpha1, which cannot
// express it.
func validateView(request *Request) field.ErrorList {
	if request.Create || request.Subresource == subresourceStatus || coordinatorLed(&request.Old.Spec) ||
		sameView(jsontype.Members(request.Raw)["spec"], jsontype.Members(request.OldRaw)["spec"]) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"),
		"this job is worker-led: v1alpha1 shows it and cannot change its spec; use v2alpha1, as in "+
			"kubectl edit dijobs.v2alpha1."+v2alpha1.GroupName+" "+request.Job.Name)}
}

// sameView reports whether two specs of v1alpha1 show the same job. The templates of roles are not
// read back, so semantic equality suffices: typed clients rewrite them.
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

// sameFields reports whether members that are read back are equal. An empty member equals an absent
// one, because typed clients write empty members. Within a member every detail counts: an empty
// selector differs from none.
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
	// Decoded members decode again; absent ones stay nil.
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

// inTurn runs validations until one finds an error, because each requires that the previous ones
// passed. It stops if the caller has disconnected.
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

// validateChange returns the errors of a new job, or those that an update adds.
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

// lessByTask is less, except that it compares tasks by name, so that a moved task keeps its old
// errors.
func lessByTask(errs, others field.ErrorList, request *Request) field.ErrorList {
	before := map[string]int{}
	for _, err := range others {
		before[byTask(err, &request.Old.Spec)]++
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		// Tasks may have the same name, and then each has its own errors.
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

// validateSize checks the number of pods, and that they can read all addresses.
func validateSize(job *v2alpha1.DIJob, at paths, within Bounds) field.ErrorList {
	errs := validateCounts(&job.Spec, at, within.MaxPods)
	errs = append(errs, validateProducers(&job.Spec, at, cmp.Or(within.MaxPods, limits.PodsPerJob))...)
	if len(errs) > 0 || coordinatorLed(&job.Spec) {
		return errs
	}
	return validateAddresses(job, at, within.Domain)
}

// validateCounts checks the number of pods, now and after a resize.
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

// less returns the errors that are not among the others.
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

// validateContent returns the errors of a job, its templates and its volumes, whether new or
// existing.
func validateContent(job *v2alpha1.DIJob, at paths) field.ErrorList {
	return append(validateJob(job, at), validateVolumes(&job.Spec, at)...)
}
