// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// defaultElastic fills which task is resized, and levels its two counts to the
// one that was changed.
func defaultElastic(changes *Patch, request *Request) {
	spec := &request.Job.Spec
	if request.Old != nil && elasticTaskGone(spec, &request.Old.Spec) {
		forgetElasticTask(changes, spec, &request.Old.Spec)
	}
	i := names.ElasticTask(spec)
	if i < 0 {
		return
	}
	name, count := names.TaskName(&spec.Tasks[i]), replicasOf(&spec.Tasks[i])
	if count < 0 {
		// It is refused, and only where the user wrote it.
		return
	}
	if before, countBefore := oldCounts(request.Old, name); before != nil && countBefore == count && (spec.Elastic == nil || spec.Elastic.Replicas == nil) {
		// A client built for v1.1.3 drops the count with all of elastic, and means no other.
		count = *before
	}
	switch {
	case spec.Elastic == nil:
		changes.set("/spec/elastic", map[string]any{"task": name, "replicas": count})
		return
	case spec.Elastic.Task == "":
		changes.set("/spec/elastic/task", name)
	}
	if spec.Elastic.Replicas == nil {
		changes.set("/spec/elastic/replicas", count)
		return
	}
	levelCounts(changes, request, i)
}

// levelCounts levels elastic.replicas and the replicas of the elastic task to
// the one that was changed; in a new job elastic.replicas wins.
func levelCounts(changes *Patch, request *Request, elastic int) {
	task := &request.Job.Spec.Tasks[elastic]
	wanted, count := request.Job.Spec.Elastic.Replicas, replicasOf(task)
	before, countBefore := oldCounts(request.Old, names.TaskName(task))
	switch {
	case before != nil && *wanted == *before && countBefore != count:
		changes.set("/spec/elastic/replicas", count)
	case *wanted < 0:
		// As above.
	case *wanted != count && (before == nil || *wanted != *before):
		changes.set(fmt.Sprintf("/spec/tasks/%d/replicas", elastic), *wanted)
	}
}

// elasticTaskGone reports whether an update removed the task that defaulting named
// in elastic and left its name there, as who applies a manifest does: what the
// manifest never said, it does not take back.
func elasticTaskGone(spec, old *v2alpha1.DIJobSpec) bool {
	if spec.Elastic == nil || old.Elastic == nil || spec.Elastic.Task == "" ||
		spec.Elastic.Task != old.Elastic.Task || names.ElasticTask(spec) >= 0 {
		return false
	}
	derived := names.ElasticTask(&v2alpha1.DIJobSpec{Tasks: old.Tasks})
	return derived >= 0 && names.TaskName(&old.Tasks[derived]) == old.Elastic.Task
}

// forgetElasticTask forgets what defaulting wrote about a task that is gone, so
// that it is rewritten, if there is a task to write it about.
func forgetElasticTask(changes *Patch, spec, old *v2alpha1.DIJobSpec) {
	elastic := spec.Elastic
	elastic.Task = ""
	counted := elastic.Replicas != nil && old.Elastic.Replicas != nil && *elastic.Replicas == *old.Elastic.Replicas
	if counted {
		elastic.Replicas = nil
	}
	if names.ElasticTask(spec) >= 0 {
		return
	}
	if *elastic == (v2alpha1.Elastic{}) {
		changes.remove("/spec/elastic")
		return
	}
	changes.remove("/spec/elastic/task")
	if counted {
		changes.remove("/spec/elastic/replicas")
	}
}

// oldCounts returns what the replaced job wanted of the task, if it was the one
// to be resized, and how many the task itself said.
func oldCounts(old *v2alpha1.DIJob, task string) (wanted *int32, count int32) {
	if old == nil {
		return nil, 0
	}
	i := names.ElasticTask(&old.Spec)
	if i < 0 || names.TaskName(&old.Spec.Tasks[i]) != task || old.Spec.Elastic == nil {
		return nil, 0
	}
	return old.Spec.Elastic.Replicas, replicasOf(&old.Spec.Tasks[i])
}
