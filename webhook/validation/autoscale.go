// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// validateAutoscale checks spec.autoscale and tasks[].drain against the rest of the job. The schema
// holds what concerns neither names nor lists.
func validateAutoscale(job *v2alpha1.DIJob, at paths) field.ErrorList {
	errs := validateDrains(&job.Spec, at)
	autoscale := job.Spec.Autoscale
	if autoscale == nil {
		return errs
	}
	path := at.spec("autoscale")
	if autoscale.Memory != nil {
		errs = append(errs, validateAmount(autoscale.Memory.Max, path.Child("memory", "max"))...)
	}
	if autoscale.Optimizer != nil {
		errs = append(errs, validateResources(autoscale.Optimizer.Limit, path.Child("optimizer", "limit"))...)
	}
	if autoscale.Ratio != nil {
		errs = append(errs, validateRatio(job, at)...)
	}
	return errs
}

// validateDrains checks that the tasks with drain are those whose replicas are removed one by one.
func validateDrains(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.Tasks {
		switch task := &spec.Tasks[i]; {
		case task.Drain == nil || full(errs):
		case task.Type == v2alpha1.TaskTypeCoordinator:
			errs = append(errs, field.Forbidden(at.task(i, "drain"), "a coordinator is never removed while its job runs"))
		case spec.Preemptible:
			errs = append(errs, field.Forbidden(at.task(i, "drain"), "the allocator moves all pods of a preemptible job at once: save the state in a checkpoint instead"))
		}
	}
	return errs
}

// validateResources checks that resources are positive.
func validateResources(resources v2alpha1.ReplicaResources, at *field.Path) field.ErrorList {
	return append(validateAmount(resources.CPU, at.Child("cpu")), validateAmount(resources.Memory, at.Child("memory"))...)
}

func validateAmount(amount *resource.Quantity, at *field.Path) field.ErrorList {
	if amount == nil || amount.Sign() > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, amount.String(), "must be above 0")}
}

// ratioRule is a ratio rule with the job that it resizes.
type ratioRule struct {
	*v2alpha1.RatioRule
	spec *v2alpha1.DIJobSpec
	// elastic is the index of the elastic task, -1 if there is none.
	elastic int
	at      paths
	path    *field.Path
}

func ratioOf(spec *v2alpha1.DIJobSpec, at paths) ratioRule {
	return ratioRule{spec.Autoscale.Ratio, spec, names.ElasticTask(spec), at, at.spec("autoscale").Child("ratio")}
}

func validateRatio(job *v2alpha1.DIJob, at paths) field.ErrorList {
	rule := ratioOf(&job.Spec, at)
	errs := rule.validateResizes()
	errs = append(errs, rule.validateConsumer()...)
	if len(rule.Producers) == 0 {
		return append(errs, rule.validateDefault()...)
	}
	for i := range rule.Producers[:min(len(rule.Producers), limits.Producers)] {
		errs = append(errs, rule.validatePool(&rule.Producers[i], rule.path.Child("producers").Index(i))...)
	}
	return errs
}

// validateResizes refuses a rule of the operator in a job that restarts when it is resized.
func (r ratioRule) validateResizes() field.ErrorList {
	if r.Driver == v2alpha1.RatioByCoordinator {
		return nil
	}
	var errs field.ErrorList
	switch {
	case coordinatorLed(r.spec):
	case r.spec.Elastic != nil && r.spec.Elastic.OnResize == v2alpha1.OnResizeRestart:
		errs = append(errs, field.Forbidden(r.path, fmt.Sprintf("each resize would restart the job: %s must be Continue, not Restart",
			r.at.spec("elastic").Child("onResize"))))
	case len(r.spec.ClusterSpec) > 0 && !names.HasDynamicWorkers(r.spec):
		errs = append(errs, field.Forbidden(r.path, fmt.Sprintf("each resize would restart the job because of %s; "+
			"only workers of TensorFlow or MPI with %s: Continue may come and go", r.at.spec("clusterSpec"), r.at.spec("elastic").Child("onResize"))))
	}
	return errs
}

// validateConsumer checks that the consumer is a task. Prometheus may measure a consumer that is none.
func (r ratioRule) validateConsumer() field.ErrorList {
	path := r.path.Child("consumer")
	hasLearner := slices.ContainsFunc(r.spec.Tasks, func(task v2alpha1.Task) bool { return task.Type == v2alpha1.TaskTypeLearner })
	switch {
	case r.Consumer != "":
		return tasksOf(r.spec).unknown(r.Consumer, path)
	case !hasLearner && r.Prometheus == nil:
		return field.ErrorList{field.Required(path, "the job has no learner: name the task that consumes the samples")}
	}
	return nil
}

// isConsumer reports whether a task is the consumer.
func (r ratioRule) isConsumer(task *v2alpha1.Task) bool {
	if r.Consumer != "" {
		return names.TaskName(task) == r.Consumer
	}
	return task.Type == v2alpha1.TaskTypeLearner
}

// validateDefault checks a rule that names no producers.
func (r ratioRule) validateDefault() field.ErrorList {
	path := r.path.Child("producers")
	if coordinatorLed(r.spec) {
		collector := slices.IndexFunc(r.spec.Tasks, func(task v2alpha1.Task) bool { return task.Type == v2alpha1.TaskTypeCollector })
		switch {
		case collector < 0:
			return field.ErrorList{field.Required(r.at.spec("tasks"), "a ratio rule needs a task of type collector")}
		case r.Driver != v2alpha1.RatioByCoordinator:
			return field.ErrorList{field.Required(path, fmt.Sprintf("name task %s with its maxReplicas: nothing else bounds its number",
				names.TaskName(&r.spec.Tasks[collector])))}
		}
		return nil
	}
	switch {
	case r.elastic < 0:
		return field.ErrorList{field.Required(path, "the job has no elastic task: name the tasks that produce samples, with their maxReplicas")}
	case r.isConsumer(&r.spec.Tasks[r.elastic]):
		return field.ErrorList{field.Required(path, fmt.Sprintf("the elastic task %s is the consumer: name the tasks that produce samples",
			names.TaskName(&r.spec.Tasks[r.elastic])))}
	case r.spec.Elastic == nil || r.spec.Elastic.MaxReplicas == nil:
		return field.ErrorList{field.Required(r.at.spec("elastic").Child("maxReplicas"), "a ratio rule needs the maximum number of producers")}
	}
	return nil
}

// validatePool checks a task that the rule names as a producer.
func (r ratioRule) validatePool(pool *v2alpha1.ProducerPool, path *field.Path) field.ErrorList {
	i := slices.IndexFunc(r.spec.Tasks, func(task v2alpha1.Task) bool { return names.TaskName(&task) == pool.Task })
	switch {
	case i < 0:
		return tasksOf(r.spec).unknown(pool.Task, path.Child("task"))
	case r.isConsumer(&r.spec.Tasks[i]):
		return field.ErrorList{field.Invalid(path.Child("task"), pool.Task, "must not be the consumer, whose capacity its producers follow")}
	case coordinatorLed(r.spec) && r.spec.Tasks[i].Type != v2alpha1.TaskTypeCollector:
		return field.ErrorList{field.Invalid(path.Child("task"), pool.Task, "must be of type collector: the coordinator requests no other producers")}
	case r.spec.Preemptible && i != r.elastic:
		return field.ErrorList{field.Invalid(path.Child("task"), pool.Task, "must be the elastic task: the allocator sizes no other task of a preemptible job")}
	}
	if i != r.elastic || r.spec.Elastic == nil {
		if pool.MaxReplicas == nil && r.Driver != v2alpha1.RatioByCoordinator {
			return field.ErrorList{field.Required(path.Child("maxReplicas"), "nothing else bounds the number of task "+pool.Task)}
		}
		return nil
	}
	return r.validateElasticPool(pool, path)
}

// validateElasticPool checks the bounds of the elastic task as a producer.
func (r ratioRule) validateElasticPool(pool *v2alpha1.ProducerPool, path *field.Path) field.ErrorList {
	least, most := pool.MinReplicas, pool.MaxReplicas
	var errs field.ErrorList
	elastic := r.at.spec("elastic")
	if bound := r.spec.Elastic.MinReplicas; least != nil && bound != nil && *least < *bound {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), *least, fmt.Sprintf("must be at least %d, which is %s", *bound, elastic.Child("minReplicas"))))
	}
	switch bound := r.spec.Elastic.MaxReplicas; {
	case most == nil && bound == nil:
		errs = append(errs, field.Required(path.Child("maxReplicas"), fmt.Sprintf("%s is absent too: nothing else bounds the number of task %s", elastic.Child("maxReplicas"), pool.Task)))
	case most != nil && bound != nil && *most > *bound:
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), *most, fmt.Sprintf("must be at most %d, which is %s", *bound, elastic.Child("maxReplicas"))))
	}
	return errs
}

// validateProducers checks that the job stays within its maximum size if all producers reach theirs.
func validateProducers(spec *v2alpha1.DIJobSpec, at paths, within int32) field.ErrorList {
	if coordinatorLed(spec) || spec.Autoscale == nil || spec.Autoscale.Ratio == nil {
		return nil
	}
	rule := ratioOf(spec, at)
	counts := make([]int32, len(spec.Tasks))
	for i := range spec.Tasks {
		counts[i] = replicasOf(&spec.Tasks[i])
		for j := range rule.Producers[:min(len(rule.Producers), limits.Producers)] {
			if pool := &rule.Producers[j]; pool.MaxReplicas != nil && pool.Task == names.TaskName(&spec.Tasks[i]) {
				counts[i] = max(counts[i], *pool.MaxReplicas)
			}
		}
	}
	if total := limits.Total(counts...); total > int64(within) {
		return field.ErrorList{field.Invalid(rule.path.Child("producers"), total,
			fmt.Sprintf("the maxReplicas of all producers with the replicas of the other tasks must be at most %d, the maximum number of pods of a job here", within))}
	}
	return nil
}

// ratioSetsIt is why nothing else may set the number of a task. %s is the name of the task.
const ratioSetsIt = "the ratio rule in spec.autoscale.ratio sets the number of task %s: remove the rule before something else does, " +
	"or bound the task by its minReplicas and maxReplicas"

// Rescale returns why a request to dijobs/scale may not change the number of a job's elastic task. While the rule leaves
// the number to another master, such as a HorizontalPodAutoscaler, that one must be able to write it.
func Rescale(job *v2alpha1.DIJob, replicas int32) field.ErrorList {
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 || !names.FollowsRatio(&job.Spec, elastic) || replicas == countOf(&job.Spec, elastic) {
		return nil
	}
	if condition := conditions.Find(&job.Status, v2alpha1.ConditionAutoscaling); condition != nil && condition.Reason == v2alpha1.ReasonOtherMaster {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "replicas"), fmt.Sprintf(ratioSetsIt, names.TaskName(&job.Spec.Tasks[elastic])))}
}

// validateCountsOfRatio refuses an update that changes counts which the ratio rule sets, unless the
// autoscaler sends it. An update that adds or removes the rule may set them.
func validateCountsOfRatio(request *Request, at paths) field.ErrorList {
	if request.ByAutoscaler || request.Old == nil {
		return nil
	}
	var errs field.ErrorList
	spec, old := &request.Job.Spec, &request.Old.Spec
	for i := range spec.Tasks {
		task := names.TaskName(&spec.Tasks[i])
		before := slices.IndexFunc(old.Tasks, func(other v2alpha1.Task) bool { return names.TaskName(&other) == task })
		if before < 0 || full(errs) || !names.FollowsRatio(spec, i) || !names.FollowsRatio(old, before) || countOf(spec, i) == countOf(old, before) {
			continue
		}
		path := at.task(i, "replicas")
		if i == names.ElasticTask(spec) {
			path = at.spec("elastic").Child("replicas")
		}
		errs = append(errs, field.Forbidden(path, fmt.Sprintf(ratioSetsIt, task)))
	}
	return errs
}

// countOf returns the desired number of the i-th task of a worker-led job.
func countOf(spec *v2alpha1.DIJobSpec, i int) int32 {
	if i == names.ElasticTask(spec) && spec.Elastic != nil && spec.Elastic.Replicas != nil {
		return *spec.Elastic.Replicas
	}
	return replicasOf(&spec.Tasks[i])
}
