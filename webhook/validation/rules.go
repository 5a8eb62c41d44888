// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// mostNamed is how many valid values an error names.
const mostNamed = 10

// validateJob returns the errors of a job that the schema of v2alpha1 does not detect. They concern
// derived names, and rules that jobs of earlier releases may break: no update is rejected for
// errors that the stored job already has.
func validateJob(job *v2alpha1.DIJob, at paths) field.ErrorList {
	spec := &job.Spec
	errs := validateValues(spec, at)
	errs = append(errs, validateTasks(spec, at)...)
	if coordinatorLed(spec) {
		errs = append(errs, validateCoordinatorLed(spec, at)...)
	} else {
		errs = append(errs, validateWorkerLed(job, at)...)
	}
	errs = append(errs, validateAutoscale(job, at)...)
	return append(errs, validateLengths(job, at)...)
}

// CheckLists bounds the length of a job's lists before any rule reads their items. The
// schema has the same bounds, but applies them after defaulting, and not to jobs that
// are written through v1alpha1. An update may keep the length of a stored list.
func CheckLists(request *Request) field.ErrorList {
	at := pathsOf(request.Raw, request.Job)
	before := map[string]int{}
	if request.Old != nil {
		for _, list := range listsIn(&request.Old.Spec) {
			before[list.name] = max(before[list.name], list.length)
		}
	}
	var errs field.ErrorList
	for _, list := range listsIn(&request.Job.Spec) {
		if list.length > max(list.most, before[list.name]) {
			errs = append(errs, field.TooMany(list.at(at), list.length, list.most))
		}
	}
	return errs
}

// list describes a list of a job.
type list struct {
	// name is the same for all lists of a kind, which share their previous maximum.
	name         string
	length, most int
	at           func(paths) *field.Path
}

// listsIn returns the lists of a job that are searched, or whose items are expensive to check.
func listsIn(spec *v2alpha1.DIJobSpec) []list {
	in := func(name string) func(paths) *field.Path {
		return func(at paths) *field.Path { return at.spec(name) }
	}
	all := []list{
		{"tasks", len(spec.Tasks), limits.Tasks, in("tasks")},
		{"volumes", len(spec.Volumes), limits.Volumes, in("volumes")},
	}
	if spec.SuccessPolicy != nil {
		all = append(all, list{"targetTasks", len(spec.SuccessPolicy.TargetTasks), limits.TaskNames, func(at paths) *field.Path {
			return at.spec("successPolicy").Child("targetTasks")
		}})
	}
	if spec.FailurePolicy == nil {
		return all
	}
	rules := spec.FailurePolicy.Rules
	all = append(all, list{"rules", len(rules), limits.FailureRules, func(at paths) *field.Path {
		return at.spec("failurePolicy").Child("rules")
	}})
	for i := range rules[:min(len(rules), limits.FailureRules)] {
		all = append(all, list{"ruleTasks", len(rules[i].Tasks), limits.TaskNames, func(at paths) *field.Path {
			return at.spec("failurePolicy").Child("rules").Index(i).Child("tasks")
		}})
	}
	return all
}

// full reports whether the errors have reached their maximum number.
func full(errs field.ErrorList) bool {
	return len(errs) >= jsontype.MaxFindings
}

func validateValues(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	policies := []v2alpha1.CleanPodPolicy{v2alpha1.CleanPodPolicyAll, v2alpha1.CleanPodPolicyNone, v2alpha1.CleanPodPolicyRunning}
	if spec.CleanPodPolicy != "" && !slices.Contains(policies, spec.CleanPodPolicy) {
		errs = append(errs, field.NotSupported(at.spec("cleanPodPolicy"), spec.CleanPodPolicy, policies))
	}
	if limit := spec.BackoffLimit; limit != nil && *limit < -1 {
		errs = append(errs, field.Invalid(at.spec("backoffLimit"), *limit, "must be 0 or more, or -1 for no limit"))
	}
	return errs
}

// validateTasks checks the rules for the tasks of every job.
func validateTasks(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	if len(spec.Tasks) == 0 {
		return field.ErrorList{field.Required(at.spec("tasks"), "a job needs something to run")}
	}
	var errs field.ErrorList
	types, taken := map[v2alpha1.TaskType]bool{}, map[string]bool{}
	for i := range spec.Tasks {
		if full(errs) {
			break
		}
		task := &spec.Tasks[i]
		if types[task.Type] && task.Type != v2alpha1.TaskTypeNone {
			again := field.Duplicate(at.task(i, "type"), task.Type)
			again.Detail = "a job has one task of this type: give another one type none, and a name"
			errs = append(errs, again)
		}
		types[task.Type] = true
		name := names.TaskName(task)
		switch {
		case task.Name == "" && task.Type == v2alpha1.TaskTypeNone:
			errs = append(errs, field.Required(at.task(i, "name"), "a task of type none must be named"))
		case taken[name]:
			errs = append(errs, field.Duplicate(at.task(i, "name"), name))
		}
		taken[name] = true
		if len(validation.IsDNS1123Label(name)) > 0 {
			errs = append(errs, field.Invalid(at.task(i, "name"), name,
				notALabel+": it is part of host names"))
		}
		errs = append(errs, validateTemplate(task.Template.Raw, at.task(i, "template"))...)
	}
	return errs
}

// validateCoordinatorLed checks the rules for coordinator-led jobs.
func validateCoordinatorLed(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	led := len(spec.Tasks) == 0
	for i := range spec.Tasks {
		led = led || spec.Tasks[i].Type == v2alpha1.TaskTypeCoordinator
		if err := validateRole(&spec.Tasks[i], i, at); err != nil && !full(errs) {
			errs = append(errs, err)
		}
	}
	if !led {
		errs = append(errs, field.Required(at.spec("tasks"), "a coordinator-led job needs a task of type coordinator"))
	}
	return errs
}

// validateRole checks the rules for one of their tasks.
func validateRole(task *v2alpha1.Task, i int, at paths) *field.Error {
	switch task.Type {
	case v2alpha1.TaskTypeCoordinator:
		if replicas := replicasOf(task); replicas != 1 {
			return field.Invalid(at.task(i, "replicas"), replicas, "must be 1: one coordinator leads the job")
		}
	case v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner:
		if task.Replicas != nil && *task.Replicas > 0 {
			return field.Invalid(at.task(i, "replicas"), *task.Replicas, "must be 0: the coordinator asks for its "+string(task.Type)+"s")
		}
	default:
		return field.NotSupported(at.task(i, "type"), task.Type, []v2alpha1.TaskType{
			v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner,
		})
	}
	return nil
}

// validateWorkerLed checks the rules for worker-led jobs.
func validateWorkerLed(job *v2alpha1.DIJob, at paths) field.ErrorList {
	spec := &job.Spec
	var errs field.ErrorList
	for i := range spec.Tasks {
		if spec.Tasks[i].Type == v2alpha1.TaskTypeCoordinator && !full(errs) {
			errs = append(errs, field.Forbidden(at.task(i, "type"),
				fmt.Sprintf("a task of type coordinator needs %s: CoordinatorLed", at.spec("lifecycle"))))
		}
	}
	// Coordinator-led jobs come from v1alpha1 too, where the class is free text.
	if class := spec.PriorityClassName; class != "" && len(validation.IsDNS1123Subdomain(class)) > 0 {
		errs = append(errs, field.Invalid(at.spec("priorityClassName"), class,
			"must be the name of a PriorityClass: lower-case letters, digits, - and ."))
	}
	errs = append(errs, validateElasticTask(spec, at.spec("elastic").Child("task"))...)
	errs = append(errs, validateReferences(spec, at)...)
	errs = append(errs, validateMPI(spec, at)...)
	return append(errs, validateGang(spec, at)...)
}

// validateElasticTask checks that the elastic task is known.
func validateElasticTask(spec *v2alpha1.DIJobSpec, at *field.Path) field.ErrorList {
	switch elastic := spec.Elastic; {
	case elastic == nil:
		return nil
	case elastic.Task != "":
		return tasksOf(spec).unknown(elastic.Task, at)
	case len(spec.Tasks) > 0 && names.ElasticTask(spec) < 0:
		return field.ErrorList{field.Required(at, "the job has several tasks and no collector: name the task that may be resized")}
	}
	return nil
}

// validateReferences checks that policies name existing tasks.
func validateReferences(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	tasks := tasksOf(spec)
	check := func(names []string, at *field.Path) {
		for i, name := range names {
			if full(errs) {
				return
			}
			errs = append(errs, tasks.unknown(name, at.Index(i))...)
		}
	}
	if spec.SuccessPolicy != nil {
		check(spec.SuccessPolicy.TargetTasks, at.spec("successPolicy").Child("targetTasks"))
	}
	if spec.FailurePolicy != nil {
		for i, rule := range spec.FailurePolicy.Rules {
			check(rule.Tasks, at.spec("failurePolicy").Child("rules").Index(i).Child("tasks"))
		}
	}
	return errs
}

// taskNames are the names of a job's tasks.
type taskNames struct {
	all map[string]bool
	// first are the first names, for errors.
	first []string
}

func tasksOf(spec *v2alpha1.DIJobSpec) *taskNames {
	known := &taskNames{all: make(map[string]bool, len(spec.Tasks))}
	for i := range spec.Tasks {
		name := names.TaskName(&spec.Tasks[i])
		known.all[name] = true
		if i < mostNamed {
			known.first = append(known.first, jsontype.Shorten(name))
		}
	}
	return known
}

// unknown returns an error if the job has no task with the name. The error names the first tasks.
func (t *taskNames) unknown(name string, at *field.Path) field.ErrorList {
	if t.all[name] {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, jsontype.Shorten(name), t.first)}
}

// validateGang checks that the maximum size of the job reaches the minimum of its gang.
func validateGang(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	if spec.Scheduling == nil || spec.Scheduling.Gang == nil || spec.Scheduling.Gang.MinAvailable == nil {
		return nil
	}
	most, elastic := int64(0), names.ElasticTask(spec)
	for i := range spec.Tasks {
		count, _ := mostReplicas(spec, i, elastic, at)
		most += int64(count)
	}
	if wanted := *spec.Scheduling.Gang.MinAvailable; int64(wanted) > most {
		return field.ErrorList{field.Invalid(at.spec("scheduling").Child("gang", "minAvailable"), wanted,
			fmt.Sprintf("must be at most %d, the maximum number of pods of this job", most))}
	}
	return nil
}

// mostReplicas returns the maximum replicas of a task in a job with that elastic task, and
// the field that sets it.
func mostReplicas(spec *v2alpha1.DIJobSpec, i, elastic int, at paths) (int32, *field.Path) {
	most, said := replicasOf(&spec.Tasks[i]), at.task(i, "replicas")
	if spec.Elastic == nil || elastic != i {
		return most, said
	}
	if count := spec.Elastic.Replicas; count != nil && *count > most {
		most, said = *count, at.spec("elastic").Child("replicas")
	}
	if count := spec.Elastic.MaxReplicas; count != nil && *count > most {
		most, said = *count, at.spec("elastic").Child("maxReplicas")
	}
	return most, said
}

// jobName is the name of a job and how its author wrote it.
type jobName struct {
	// full is the name, with x for random characters; "" if there is none to check.
	full string
	// written is what the author wrote, at the path.
	written string
	at      *field.Path
	// random is how many characters of full the author did not write.
	random int
}

// nameOf returns the name of a job. The API server appends random characters to
// generateName, perhaps after admission.
func nameOf(job *v2alpha1.DIJob) jobName {
	const mostWritten = validation.DNS1123LabelMaxLength - names.SuffixLength
	prefix := job.GenerateName[:min(len(job.GenerateName), mostWritten)]
	random, generated := strings.CutPrefix(job.Name, prefix)
	if prefix != "" && (job.Name == "" || generated && len(random) == names.SuffixLength) {
		return jobName{
			full:    prefix + strings.Repeat("x", names.SuffixLength),
			written: job.GenerateName, at: field.NewPath("metadata", "generateName"), random: names.SuffixLength,
		}
	}
	return jobName{full: job.Name, written: job.Name, at: field.NewPath("metadata", "name")}
}

// without returns the maximum length that the author may write to remove an excess.
func (n jobName) without(excess int) int {
	return max(len(n.full)-n.random-excess, 1)
}

// validateName checks the rules for names of new jobs that the API server does not check.
func validateName(job *v2alpha1.DIJob) field.ErrorList {
	name := nameOf(job)
	switch {
	case strings.Contains(name.full, "."):
		return field.ErrorList{field.Invalid(name.at, name.written, "must not contain a dot: it is part of host names and of di-server's job IDs")}
	case coordinatorLed(&job.Spec) && name.full != "" && name.full[0] >= '0' && name.full[0] <= '9':
		return field.ErrorList{field.Invalid(name.at, name.written, "must start with a letter: names of services start with it")}
	}
	return nil
}

// validateLengths checks that all names derived from the job's are host names.
func validateLengths(job *v2alpha1.DIJob, at paths) field.ErrorList {
	name := nameOf(job)
	if name.full == "" {
		return nil
	}
	if coordinatorLed(&job.Spec) {
		pod := names.ReplicaPod(name.full, names.ReplicaTypeDDPLearner, strings.Repeat("x", names.SuffixLength))
		if excess := len(pod) - validation.DNS1123LabelMaxLength; excess > 0 {
			return field.ErrorList{field.Invalid(name.at, name.written, fmt.Sprintf("must be at most %d characters: %s",
				name.without(excess), tooLong(pod)))}
		}
		return nil
	}
	var errs field.ErrorList
	elastic := names.ElasticTask(&job.Spec)
	for i := range job.Spec.Tasks {
		if full(errs) {
			break
		}
		if err := validatePodNames(job, name, i, elastic, at); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// validatePodNames checks that the names of a task's pods are host names. The error is
// about the field that is easiest to change: the replicas, else the longer of two names.
func validatePodNames(job *v2alpha1.DIJob, name jobName, i, elastic int, at paths) *field.Error {
	task := names.TaskName(&job.Spec.Tasks[i])
	count, said := mostReplicas(&job.Spec, i, elastic, at)
	first, last := names.WorkerPod(name.full, task, 0), names.WorkerPod(name.full, task, max(count-1, 0))
	excess := len(first) - validation.DNS1123LabelMaxLength
	switch {
	case len(last) <= validation.DNS1123LabelMaxLength:
		return nil
	case excess <= 0:
		// The first pod's index has one digit, so some more replicas fit.
		return field.Invalid(said, count, fmt.Sprintf("must be at most 1%s: %s", strings.Repeat("0", 1-excess), tooLong(last)))
	case len(task) > len(name.full):
		return field.Invalid(at.task(i, "name"), task, fmt.Sprintf("must be at most %d characters in a job of this name: %s",
			max(len(task)-excess, 1), tooLong(first)))
	}
	return field.Invalid(name.at, name.written, fmt.Sprintf("must be at most %d characters with a task of name %s: %s",
		name.without(excess), task, tooLong(first)))
}

func tooLong(pod string) string {
	return fmt.Sprintf("the pod name %s would have %d characters, and a host name has at most %d",
		pod, len(pod), validation.DNS1123LabelMaxLength)
}
