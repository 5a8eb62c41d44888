// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// validateHeld says of what v1alpha1's extended holds what the schema of
// v2alpha1 says of the same fields, in the same words: v1alpha1's own schema
// does not see them. What is written through v2alpha1 has passed its schema.
func validateHeld(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	if _, held := at.(v1Paths); !held {
		return nil
	}
	var errs field.ErrorList
	if priorities := []v2alpha1.Priority{v2alpha1.PriorityNormal, v2alpha1.PriorityHigh}; spec.Priority != "" && !slices.Contains(priorities, spec.Priority) {
		errs = append(errs, field.NotSupported(at.spec("priority"), spec.Priority, priorities))
	}
	if lifecycles := []v2alpha1.Lifecycle{v2alpha1.LifecycleWorkerLed, v2alpha1.LifecycleCoordinatorLed}; spec.Lifecycle != "" && !slices.Contains(lifecycles, spec.Lifecycle) {
		errs = append(errs, field.NotSupported(at.spec("lifecycle"), spec.Lifecycle, lifecycles))
	}
	errs = append(errs, validateHeldTasks(spec, at)...)
	if elastic := spec.Elastic; elastic != nil && elastic.MinReplicas != nil && elastic.MaxReplicas != nil && *elastic.MinReplicas > *elastic.MaxReplicas {
		errs = append(errs, field.Invalid(at.spec("elastic").Child("minReplicas"), field.OmitValueType{},
			fmt.Sprintf("must be at most maxReplicas, which is %d, not %d", *elastic.MaxReplicas, *elastic.MinReplicas)))
	}
	if coordinatorLed(spec) {
		return append(errs, validateHeldByCoordinator(spec, at)...)
	}
	if spec.AggregatorConfig != nil {
		errs = append(errs, field.Forbidden(at.spec("aggregatorConfig"), "only for a job of lifecycle CoordinatorLed: no other has aggregators"))
	}
	return errs
}

func validateHeldTasks(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	known := []v2alpha1.TaskType{
		v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeLearner, v2alpha1.TaskTypeCollector,
		v2alpha1.TaskTypeEvaluator, v2alpha1.TaskTypeNone,
	}
	var errs field.ErrorList
	for i := range spec.Tasks {
		task := &spec.Tasks[i]
		if !slices.Contains(known, task.Type) {
			errs = append(errs, field.NotSupported(at.task(i, "type"), task.Type, known))
		}
		if task.Replicas != nil && *task.Replicas < 0 {
			path := at.task(i, "replicas")
			errs = append(errs, field.Invalid(path, *task.Replicas, path.String()+" in body should be greater than or equal to 0"))
		}
	}
	return errs
}

// validateHeldByCoordinator holds what a coordinator-led job refuses.
func validateHeldByCoordinator(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	for _, refused := range []struct {
		at  *field.Path
		set bool
	}{
		{at.spec("preemptible"), spec.Preemptible},
		{at.spec("elastic"), spec.Elastic != nil},
		{at.spec("failurePolicy"), spec.FailurePolicy != nil},
		{at.spec("successPolicy"), spec.SuccessPolicy != nil},
		{at.spec("scheduling").Child("gang"), spec.Scheduling != nil && spec.Scheduling.Gang != nil},
		{at.spec("clusterSpec"), len(spec.ClusterSpec) > 0},
	} {
		if refused.set {
			errs = append(errs, field.Forbidden(refused.at, "not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas"))
		}
	}
	return errs
}

// validateElasticCount holds the count of the elastic task to its bounds when
// it changes, where v2alpha1's schema does not see it.
func validateElasticCount(asked *question, at paths) field.ErrorList {
	if _, held := at.(v1Paths); !held {
		return nil
	}
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
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, fmt.Sprintf(
			"must be at least minReplicas, which is %d, as must the replicas of the task that it counts; not %d", *elastic.MinReplicas, count))}
	case elastic.MaxReplicas != nil && count > *elastic.MaxReplicas:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, fmt.Sprintf(
			"must be at most maxReplicas, which is %d, as must the replicas of the task that it counts; not %d", *elastic.MaxReplicas, count))}
	}
	return nil
}
