// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// validateJob returns all that is wrong with a job whatever it was before.
func validateJob(job *v2alpha1.DIJob, at paths) field.ErrorList {
	spec := &job.Spec
	errs := validateValues(spec, at)
	errs = append(errs, validateTasks(spec, at)...)
	if coordinatorLed(spec) {
		errs = append(errs, validateCoordinatorLed(spec, at)...)
	} else {
		errs = append(errs, validateWorkerLed(spec, at)...)
	}
	return append(errs, validateLengths(job)...)
}

func validateValues(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	if policies := []v2alpha1.CleanPodPolicy{v2alpha1.CleanPodPolicyAll, v2alpha1.CleanPodPolicyNone, v2alpha1.CleanPodPolicyRunning}; spec.CleanPodPolicy != "" && !slices.Contains(policies, spec.CleanPodPolicy) {
		errs = append(errs, field.NotSupported(at.spec("cleanPodPolicy"), spec.CleanPodPolicy, policies))
	}
	if priorities := []v2alpha1.Priority{v2alpha1.PriorityHigh, v2alpha1.PriorityNormal}; spec.Priority != "" && !slices.Contains(priorities, spec.Priority) {
		errs = append(errs, field.NotSupported(at.spec("priority"), spec.Priority, priorities))
	}
	if lifecycles := []v2alpha1.Lifecycle{v2alpha1.LifecycleCoordinatorLed, v2alpha1.LifecycleWorkerLed}; spec.Lifecycle != "" && !slices.Contains(lifecycles, spec.Lifecycle) {
		errs = append(errs, field.NotSupported(at.spec("lifecycle"), spec.Lifecycle, lifecycles))
	}
	if limit := spec.BackoffLimit; limit != nil && *limit < -1 {
		errs = append(errs, field.Invalid(at.spec("backoffLimit"), *limit, "must be 0 or more, or -1 for no limit"))
	}
	return errs
}

// validateTasks holds the rules for the tasks of every job.
func validateTasks(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	if len(spec.Tasks) == 0 {
		return field.ErrorList{field.Required(at.spec("tasks"), "a job needs something to run")}
	}
	var errs field.ErrorList
	types, taken := map[v2alpha1.TaskType]bool{}, map[string]bool{}
	for i := range spec.Tasks {
		task := &spec.Tasks[i]
		if types[task.Type] && task.Type != v2alpha1.TaskTypeNone {
			errs = append(errs, field.Duplicate(at.task(i, "type"), task.Type))
		}
		types[task.Type] = true
		if known := taskTypes(); !slices.Contains(known, task.Type) {
			errs = append(errs, field.NotSupported(at.task(i, "type"), task.Type, known))
		}
		if task.Replicas != nil && *task.Replicas < 0 {
			errs = append(errs, field.Invalid(at.task(i, "replicas"), *task.Replicas, "must be 0 or more"))
		}
		name := names.TaskName(task)
		switch {
		case task.Name == "" && task.Type == v2alpha1.TaskTypeNone:
			errs = append(errs, field.Required(at.task(i, "name"), "a task of type none must be named"))
		case taken[name]:
			errs = append(errs, field.Duplicate(at.task(i, "name"), name))
		}
		taken[name] = true
		for _, message := range validation.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(at.task(i, "name"), name, message))
		}
		errs = append(errs, validateTemplate(task, at.task(i, "template"))...)
	}
	return errs
}

// taskTypes are the types that a task may have. The schema of v2alpha1 says
// so too, but does not see what v1alpha1's extended holds.
func taskTypes() []v2alpha1.TaskType {
	return []v2alpha1.TaskType{
		v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeEvaluator,
		v2alpha1.TaskTypeLearner, v2alpha1.TaskTypeNone,
	}
}

// validateCoordinatorLed holds the rules for jobs that are led by a coordinator.
func validateCoordinatorLed(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	led := len(spec.Tasks) == 0
	for i := range spec.Tasks {
		task := &spec.Tasks[i]
		switch task.Type {
		case v2alpha1.TaskTypeCoordinator:
			led = true
			if replicas := replicasOf(task); replicas != 1 {
				errs = append(errs, field.Invalid(at.task(i, "replicas"), replicas, "must be 1: one coordinator leads the job"))
			}
		case v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner:
			if task.Replicas != nil && *task.Replicas > 0 {
				errs = append(errs, field.Invalid(at.task(i, "replicas"), *task.Replicas,
					"must be 0: the coordinator asks for its "+string(task.Type)+"s"))
			}
		default:
			errs = append(errs, field.NotSupported(at.task(i, "type"), task.Type, []v2alpha1.TaskType{
				v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner,
			}))
		}
	}
	if !led {
		errs = append(errs, field.Required(at.spec("tasks"), "a coordinator-led job needs a task of type coordinator"))
	}
	for name, isSet := range map[string]bool{
		"preemptible":   spec.Preemptible,
		"elastic":       spec.Elastic != nil,
		"successPolicy": spec.SuccessPolicy != nil,
		"failurePolicy": spec.FailurePolicy != nil,
		"clusterSpec":   len(spec.ClusterSpec) > 0,
	} {
		if isSet {
			errs = append(errs, refused(at.spec(name)))
		}
	}
	if spec.Scheduling != nil && spec.Scheduling.Gang != nil {
		errs = append(errs, refused(at.spec("scheduling").Child("gang")))
	}
	// The map has no order, people like one.
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

func refused(at *field.Path) *field.Error {
	return field.Forbidden(at, "not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas")
}

// validateWorkerLed holds the rules for jobs whose spec lists their replicas.
func validateWorkerLed(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.Tasks {
		if spec.Tasks[i].Type == v2alpha1.TaskTypeCoordinator {
			errs = append(errs, field.Forbidden(at.task(i, "type"), "a task of type coordinator needs spec.lifecycle: CoordinatorLed"))
		}
	}
	if spec.Elastic != nil {
		errs = append(errs, validateElastic(spec, at.spec("elastic"))...)
	}
	if spec.SuccessPolicy != nil {
		errs = append(errs, knownTasks(spec, spec.SuccessPolicy.TargetTasks, at.spec("successPolicy").Child("targetTasks"))...)
	}
	if spec.FailurePolicy != nil {
		for i, rule := range spec.FailurePolicy.Rules {
			errs = append(errs, knownTasks(spec, rule.Tasks, at.spec("failurePolicy").Child("rules").Index(i).Child("tasks"))...)
		}
	}
	return errs
}

func validateElastic(spec *v2alpha1.DIJobSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	elastic := spec.Elastic
	switch {
	case elastic.Task != "":
		errs = append(errs, knownTasks(spec, []string{elastic.Task}, at.Child("task"))...)
	case len(spec.Tasks) > 0 && names.ElasticTask(spec) < 0:
		errs = append(errs, field.Required(at.Child("task"), "the job has several tasks and no collector: name the task that may be resized"))
	}
	if elastic.MinReplicas != nil && elastic.MaxReplicas != nil && *elastic.MinReplicas > *elastic.MaxReplicas {
		errs = append(errs, field.Invalid(at.Child("minReplicas"), *elastic.MinReplicas,
			fmt.Sprintf("must be at most maxReplicas, which is %d", *elastic.MaxReplicas)))
	}
	return errs
}

// validateElasticCount says whether the count that a request wants of the
// elastic task is within its bounds. A write to the scale subresource is not
// seen here, so a count that did not change is not refused; nor is that of a
// preemptible job, whose size the allocator chooses.
func validateElasticCount(asked *question, at paths) field.ErrorList {
	elastic := asked.job.Spec.Elastic
	if elastic == nil || elastic.Replicas == nil || asked.job.Spec.Preemptible || coordinatorLed(&asked.job.Spec) {
		return nil
	}
	if old := asked.old; old != nil && old.Spec.Elastic != nil && ptr.Equal(old.Spec.Elastic.Replicas, elastic.Replicas) {
		return nil
	}
	path, count := at.spec("elastic").Child("replicas"), *elastic.Replicas
	switch {
	case elastic.MinReplicas != nil && count < *elastic.MinReplicas:
		return field.ErrorList{field.Invalid(path, count, fmt.Sprintf(
			"must be at least minReplicas, which is %d, as must the replicas of the task that it counts", *elastic.MinReplicas))}
	case elastic.MaxReplicas != nil && count > *elastic.MaxReplicas:
		return field.ErrorList{field.Invalid(path, count, fmt.Sprintf(
			"must be at most maxReplicas, which is %d, as must the replicas of the task that it counts", *elastic.MaxReplicas))}
	}
	return nil
}

// knownTasks says which of the named tasks the job does not have.
func knownTasks(spec *v2alpha1.DIJobSpec, listed []string, at *field.Path) field.ErrorList {
	var known []string
	for i := range spec.Tasks {
		known = append(known, names.TaskName(&spec.Tasks[i]))
	}
	var errs field.ErrorList
	for _, name := range listed {
		if !slices.Contains(known, name) {
			errs = append(errs, field.NotSupported(at, name, known))
		}
	}
	return errs
}

// validateName holds the rules for the names of new jobs. One that is still to
// be generated is not there yet.
func validateName(job *v2alpha1.DIJob) field.ErrorList {
	at := field.NewPath("metadata", "name")
	if job.Name == "" {
		return nil
	}
	if strings.Contains(job.Name, ".") {
		return field.ErrorList{field.Invalid(at, job.Name, "must not contain a dot: it is part of host names and of di-server's job IDs")}
	}
	messages := validation.IsDNS1123Label(job.Name)
	if coordinatorLed(&job.Spec) {
		// Its services bear names that start with the job's.
		messages = validation.IsDNS1035Label(job.Name)
	}
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(at, job.Name, message))
	}
	return errs
}

// validateLengths holds that all names made from the job's fit a DNS label.
func validateLengths(job *v2alpha1.DIJob) field.ErrorList {
	longest := names.WorkerService(job.Name)
	if coordinatorLed(&job.Spec) {
		longest = names.ReplicaPod(job.Name, names.ReplicaTypeDDPLearner, strings.Repeat("x", names.SuffixLength))
	} else {
		for i := range job.Spec.Tasks {
			pod := names.WorkerPod(job.Name, names.TaskName(&job.Spec.Tasks[i]), mostReplicas(&job.Spec, i)-1)
			if len(pod) > len(longest) {
				longest = pod
			}
		}
	}
	excess := len(longest) - validation.DNS1123LabelMaxLength
	if excess <= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), job.Name,
		fmt.Sprintf("must be at most %d characters, so that the names of its pods and services fit %d",
			max(len(job.Name)-excess, 0), validation.DNS1123LabelMaxLength))}
}

// mostReplicas returns to how many replicas a task may grow.
func mostReplicas(spec *v2alpha1.DIJobSpec, i int) int32 {
	most := max(replicasOf(&spec.Tasks[i]), 1)
	if spec.Elastic == nil || names.ElasticTask(spec) != i {
		return most
	}
	for _, count := range []*int32{spec.Elastic.Replicas, spec.Elastic.MaxReplicas} {
		if count != nil {
			most = max(most, *count)
		}
	}
	return most
}
