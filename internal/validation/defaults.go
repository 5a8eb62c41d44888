// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
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
	raw := restoreExtended(&changes, request, part)
	if part != "spec" || !isSet(members(raw)["spec"]) {
		return changes, nil
	}
	job, err := decodeHub(raw)
	if err != nil {
		return nil, err
	}
	if !coordinatorLed(&job.Spec) {
		// What a worker-led job lacks is for v2alpha1 to default: its spec is
		// not to be changed through v1alpha1, by nobody.
		return changes, nil
	}
	spec := members(members(raw)["spec"])
	defaultPolicyV1(&changes, spec["cleanPodPolicy"])
	dropUnusedRoles(&changes, spec)
	return changes, nil
}

// defaultPolicyV1 fills the policy, and levels its letter case, of which
// v1alpha1 takes any.
func defaultPolicyV1(changes *Patch, raw json.RawMessage) {
	var written string
	// What is no text was refused before.
	_ = json.Unmarshal(raw, &written)
	policy := written
	if policy == "" {
		policy = string(v2alpha1.CleanPodPolicyRunning)
	}
	if canonical, ok := conversion.CanonicalCleanPodPolicy(policy); ok && written != string(canonical) {
		changes.set("/spec/cleanPodPolicy", canonical)
	}
}

// dropUnusedRoles drops the collector and the learner where they are what typed
// Go clients write for a role that a job does not have.
func dropUnusedRoles(changes *Patch, spec map[string]json.RawMessage) {
	for _, role := range []v2alpha1.TaskType{v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		if isZeroRole(spec[string(role)]) {
			changes.remove("/spec/" + string(role))
		}
	}
}

// isZeroRole reports whether a role is the zero value of its Go type, which is
// told by the containers: of all that is empty, no others are written. A person
// who writes an empty role has forgotten something, and reads what.
func isZeroRole(role json.RawMessage) bool {
	containers, written := members(members(members(role)["template"])["spec"])["containers"]
	if !written || isSet(containers) {
		return false
	}
	// What was decoded decodes again.
	value, _ := decodeAny(role)
	return saysNothing(value)
}

// restoreExtended keeps the stored extended where an update lacks it, as old
// manifests and old typed clients do, and returns the object as it is then.
func restoreExtended(changes *Patch, request *Request, part string) []byte {
	if request.Create {
		return request.Raw
	}
	stored := members(members(request.OldRaw)[part])["extended"]
	job := members(request.Raw)
	written := members(job[part])
	if !isSet(stored) || isSet(written["extended"]) || written == nil {
		return request.Raw
	}
	changes.set("/"+part+"/extended", stored)
	written["extended"] = stored
	// Members that were decoded encode again.
	job[part], _ = json.Marshal(written)
	raw, _ := json.Marshal(job)
	return raw
}

// DefaultV2 returns the defaults of a job that was written through v2alpha1.
func DefaultV2(request *Request) (Patch, error) {
	if !isSet(members(request.Raw)["spec"]) {
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

// defaultTask fills the type, the name and the replicas of a task. The definitions of
// v1.1.x asked for no type, and their controllers ran a named task without one.
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
