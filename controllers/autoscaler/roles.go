// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
)

// roles are the producers and the consumer of a job.
type roles struct {
	pools []pool
	// consumer is the name of the consumer's task, consumerType its type, consumers how many replicas it has.
	consumer, consumerType string
	consumers              int32
}

// pool is a task of producers.
type pool struct {
	ratio.Pool
	kind v2alpha1.TaskType
	// index is that of the task in the spec, and isElastic is set if the elastic count is its count.
	index     int
	isElastic bool
	requested int32
	// members has the replicas of a coordinator-led job; nil for any other job.
	members *v2alpha1.Membership
}

// rolesOf returns the roles of a job, and of its Membership if it has one. The error says what is wrong with the rule.
func rolesOf(job *v2alpha1.DIJob, list *v2alpha1.Membership, rule *v2alpha1.RatioRule, maxPods int32) (*roles, error) {
	producers := rule.Producers
	if len(producers) == 0 {
		index := names.ElasticTask(&job.Spec)
		if index < 0 {
			return nil, errors.New("spec.autoscale.ratio.producers: the job has no elastic task: name one")
		}
		producers = []v2alpha1.ProducerPool{{Task: names.TaskName(&job.Spec.Tasks[index])}}
	}
	found := &roles{}
	total := int32(0)
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		total += countOf(job, list, i)
		if names.TaskName(task) == rule.Consumer || rule.Consumer == "" && task.Type == v2alpha1.TaskTypeLearner && found.consumer == "" {
			found.consumer, found.consumerType, found.consumers = names.TaskName(task), string(task.Type), countOf(job, list, i)
		}
	}
	if found.consumer == "" {
		found.consumer, found.consumerType = rule.Consumer, string(v2alpha1.TaskTypeLearner)
	}
	for i := range producers {
		pool, err := poolOf(job, list, &producers[i], max(maxPods-total, 0))
		if err != nil {
			return nil, fmt.Errorf("spec.autoscale.ratio.producers[%d]: %w", i, err)
		}
		if job.Spec.Preemptible && !pool.isElastic {
			return nil, fmt.Errorf("spec.autoscale.ratio.producers[%d].task: the allocator sizes only the elastic task of a preemptible job, which is not %q", i, pool.Task)
		}
		found.pools = append(found.pools, pool)
	}
	return found, nil
}

// countOf returns how many pods of a task are requested.
func countOf(job *v2alpha1.DIJob, list *v2alpha1.Membership, task int) int32 {
	if list != nil {
		return countMembers(list, job.Spec.Tasks[task].Type)
	}
	return sizing.Count(job, task)
}

// poolOf returns a pool. The elastic task has also the bounds of spec.elastic. Without a maximum, a pool may have
// as many replicas more as the job may have pods.
func poolOf(job *v2alpha1.DIJob, list *v2alpha1.Membership, producer *v2alpha1.ProducerPool, room int32) (pool, error) {
	elastic := names.ElasticTask(&job.Spec)
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		if names.TaskName(task) != producer.Task {
			continue
		}
		found := pool{kind: task.Type, index: i, requested: countOf(job, list, i), members: list}
		if i == elastic && list == nil {
			found.requested = sizing.Wanted(job).ByTask[i]
		}
		least, most := int32(1), found.requested+room
		if bounds := job.Spec.Elastic; i == elastic && bounds != nil {
			found.isElastic = true
			least, most = ptr.Deref(bounds.MinReplicas, least), min(ptr.Deref(bounds.MaxReplicas, most), most)
			found.Min, found.Max = max(ptr.Deref(producer.MinReplicas, least), ptr.Deref(bounds.MinReplicas, 0)), min(ptr.Deref(producer.MaxReplicas, most), most)
		} else {
			found.Min, found.Max = ptr.Deref(producer.MinReplicas, least), min(ptr.Deref(producer.MaxReplicas, most), most)
		}
		found.Task = producer.Task
		found.Max = max(found.Max, found.Min)
		return found, nil
	}
	return pool{}, fmt.Errorf("the job has no task %q", producer.Task)
}

// settings returns the settings of the rule.
func (r *roles) settings(rule *v2alpha1.RatioRule) ratio.Settings {
	settings := ratio.Defaults()
	for i := range r.pools {
		settings.Pools = append(settings.Pools, r.pools[i].Pool)
	}
	settings.MaxStaleness = float64(ptr.Deref(rule.MaxStaleness, 0))
	return settings
}

// tasks returns the names of the producers' tasks.
func (r *roles) tasks() []string {
	tasks := make([]string, len(r.pools))
	for i := range r.pools {
		tasks[i] = r.pools[i].Task
	}
	return tasks
}

// requested returns how many producers are requested.
func (r *roles) requested() int32 {
	total := int32(0)
	for i := range r.pools {
		total += r.pools[i].requested
	}
	return total
}

// Producer returns the task of a producer's role, which is its name or its type; empty for any other role.
func (r *roles) Producer(role string) string {
	for i := range r.pools {
		if r.pools[i].Task == role {
			return role
		}
	}
	for i := range r.pools {
		if string(r.pools[i].kind) == role {
			return r.pools[i].Task
		}
	}
	return ""
}

// IsConsumer reports whether a role is that of the consumer.
func (r *roles) IsConsumer(role string) bool {
	return role == r.consumer || role == r.consumerType && r.Producer(role) == ""
}

// Consumers returns how many replicas the consumer has; 0 is unknown.
func (r *roles) Consumers() int32 { return r.consumers }
