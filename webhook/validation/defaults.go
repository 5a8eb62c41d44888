// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// Defaults of worker-led jobs.
const (
	defaultBackoffLimit int32 = 3
	defaultReplicas     int32 = 1
)

// DefaultV1 returns the defaults of a job that was written through v1alpha1.
func DefaultV1(request *Request) (Patch, error) {
	var changes Patch
	part := "spec"
	if request.Subresource == subresourceStatus {
		part = "status"
	}
	given := dropGivenUp(&changes, request)
	raw := restoreExtended(&changes, request, given, part)
	if part != "spec" || !jsontype.IsSet(jsontype.Members(raw)["spec"]) {
		return changes, nil
	}
	job, err := decodeHub(raw)
	if err != nil {
		return nil, err
	}
	if !coordinatorLed(&job.Spec) {
		// v2alpha1 defaults worker-led jobs; v1alpha1 cannot change their spec.
		return changes, nil
	}
	spec := jsontype.Members(jsontype.Members(raw)["spec"])
	defaultPolicyV1(&changes, spec["cleanPodPolicy"])
	dropUnusedRoles(&changes, spec)
	return changes, nil
}

// defaultPolicyV1 defaults the policy. It also corrects its letter case, because v1alpha1 accepts
// any.
func defaultPolicyV1(changes *Patch, raw json.RawMessage) {
	var written string
	// Another type was rejected earlier.
	_ = json.Unmarshal(raw, &written)
	policy := written
	if policy == "" {
		policy = string(v2alpha1.CleanPodPolicyRunning)
	}
	if canonical, ok := conversion.CanonicalCleanPodPolicy(policy); ok && written != string(canonical) {
		changes.set("/spec/cleanPodPolicy", canonical)
	}
}

// dropUnusedRoles drops the zero collector and learner that typed Go clients write for a
// role that the job does not have.
func dropUnusedRoles(changes *Patch, spec map[string]json.RawMessage) {
	for _, role := range []v2alpha1.TaskType{v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		if isZeroRole(spec[string(role)]) {
			changes.remove("/spec/" + string(role))
		}
	}
}

// isZeroRole reports whether a role is the zero value of its Go type: only Go clients write
// null containers. A user who writes an empty role gets an error.
func isZeroRole(role json.RawMessage) bool {
	containers, written := jsontype.Members(jsontype.Members(jsontype.Members(role)["template"])["spec"])["containers"]
	if !written || jsontype.IsSet(containers) {
		return false
	}
	// A decoded value decodes again.
	value, _ := jsontype.DecodeAny(role)
	return jsontype.IsBlank(value)
}

// restoreExtended restores the stored extended if an update omits it, and returns the resulting
// object. Old manifests and typed clients omit it.
func restoreExtended(changes *Patch, request *Request, given []byte, part string) []byte {
	if request.Create {
		return given
	}
	stored := jsontype.Members(jsontype.Members(request.OldRaw)[part])["extended"]
	job := jsontype.Members(given)
	written := jsontype.Members(job[part])
	if !jsontype.IsSet(stored) || jsontype.IsSet(written["extended"]) || written == nil {
		return given
	}
	changes.set("/"+part+"/extended", stored)
	written["extended"] = stored
	// Decoded members encode again.
	job[part], _ = json.Marshal(written)
	raw, _ := json.Marshal(job)
	return raw
}

// DefaultV2 returns the defaults of a job that was written through v2alpha1.
func DefaultV2(request *Request) (Patch, error) {
	if !jsontype.IsSet(jsontype.Members(request.Raw)["spec"]) {
		return nil, nil
	}
	var changes Patch
	spec := &request.Job.Spec
	if request.Old != nil && spec.Lifecycle == "" && request.Old.Spec.Lifecycle != "" {
		spec.Lifecycle = request.Old.Spec.Lifecycle
		changes.set("/spec/lifecycle", spec.Lifecycle)
	}
	if spec.CleanPodPolicy == "" {
		changes.set("/spec/cleanPodPolicy", v2alpha1.CleanPodPolicyRunning)
	}
	limit := defaultBackoffLimit
	if coordinatorLed(spec) {
		limit = 0
	} else if spec.Priority == "" {
		changes.set("/spec/priority", v2alpha1.PriorityNormal)
	}
	if spec.BackoffLimit == nil {
		changes.set("/spec/backoffLimit", limit)
	}
	for i := range spec.Tasks {
		defaultTask(&changes, spec, i)
	}
	if !coordinatorLed(spec) {
		defaultElastic(&changes, request)
	}
	return changes, nil
}

// defaultTask sets the type, the name and the replicas of a task. The definitions of v1.1.x
// required no type, and their controllers ran a named task without one.
func defaultTask(changes *Patch, spec *v2alpha1.DIJobSpec, i int) {
	task := &spec.Tasks[i]
	at := fmt.Sprintf("/spec/tasks/%d/", i)
	if task.Type == "" && task.Name != "" {
		task.Type = v2alpha1.TaskTypeNone
		changes.set(at+"type", task.Type)
	}
	if task.Name == "" && task.Type != v2alpha1.TaskTypeNone {
		changes.set(at+"name", task.Type)
	}
	if task.Replicas == nil {
		replicas := defaultReplicas
		if coordinatorLed(spec) && task.Type != v2alpha1.TaskTypeCoordinator {
			replicas = 0
		}
		changes.set(at+"replicas", replicas)
	}
}

func replicasOf(task *v2alpha1.Task) int32 {
	if task.Replicas == nil {
		return defaultReplicas
	}
	return *task.Replicas
}

func coordinatorLed(spec *v2alpha1.DIJobSpec) bool {
	return spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed
}

// defaultElastic defaults the elastic task. It syncs the two counts of the task to the changed one.
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
		// Validation reports it at the field that the user wrote.
		return
	}
	if before, countBefore := oldCounts(request.Old, name); before != nil && countBefore == count && (spec.Elastic == nil || spec.Elastic.Replicas == nil) {
		// A client built for v1.1.3 drops elastic without intending another count.
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
	syncCounts(changes, request, i)
}

// syncCounts syncs elastic.replicas and the replicas of the elastic task to the changed one. In a
// new job elastic.replicas takes precedence.
func syncCounts(changes *Patch, request *Request, elastic int) {
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

// elasticTaskGone reports whether an update removed the task that defaulting named in elastic but
// kept its name there. Applying a manifest does so, because it does not own the name.
func elasticTaskGone(spec, old *v2alpha1.DIJobSpec) bool {
	if spec.Elastic == nil || old.Elastic == nil || spec.Elastic.Task == "" ||
		spec.Elastic.Task != old.Elastic.Task || names.ElasticTask(spec) >= 0 {
		return false
	}
	derived := names.ElasticTask(&v2alpha1.DIJobSpec{Tasks: old.Tasks})
	return derived >= 0 && names.TaskName(&old.Tasks[derived]) == old.Elastic.Task
}

// forgetElasticTask removes the defaults that refer to a removed task, so that they are set again
// for another task.
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

// oldCounts returns elastic.replicas and the task's replicas of the replaced job if the task was
// the elastic one.
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
