// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Lost returns the paths of the values of a v1alpha1 job, which is JSON, that the stored form does
// not keep. A job whose extended is absent or came from conversion loses nothing. Lost fails where
// Convert fails.
//
// Three things do not count as lost. The letter case of cleanPodPolicy is normalized to that of
// v2alpha1. A task in extended was removed by an edit through v1alpha1 if the job no longer has its
// role. The phase and counts in extended are outdated if v1alpha1 has written the status since.
func Lost(raw []byte) ([]string, error) {
	toHub, err := Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	// The output of Convert always converts.
	fromHub, _ := Convert(toHub, v1alpha1.GroupVersion.String())
	written, hub, back := decodeJob(raw), decodeJob(toHub), decodeJob(fromHub)
	lost := lostOfSpec(members(written["spec"]), members(hub["spec"]), members(back["spec"]))
	return append(lost, lostOfStatus(members(written["status"]), members(hub["status"]), members(back["status"]))...), nil
}

// decodeJob returns valid JSON as plain values, with numbers as they are written.
func decodeJob(raw []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	job := map[string]any{}
	_ = decoder.Decode(&job)
	return job
}

// members returns the members of an object, and none if the value is not an object.
func members(value any) map[string]any {
	object, _ := value.(map[string]any)
	return object
}

func lostOfSpec(written, hub, back map[string]any) []string {
	path := field.NewPath("spec")
	extended := members(written[fieldExtended])
	delete(written, fieldExtended)
	if policy, ok := written["cleanPodPolicy"].(string); ok {
		if canonical, known := CanonicalCleanPodPolicy(policy); known {
			written["cleanPodPolicy"] = string(canonical)
		}
	}
	lost := lostMembers(path, written, hub, back)
	path = path.Child(fieldExtended)
	if tasks, ok := extended[fieldTasks].([]any); ok && hub[fieldLifecycle] == string(v2alpha1.LifecycleCoordinatorLed) {
		delete(extended, fieldTasks)
		lost = append(lost, lostOfTasks(path.Child(fieldTasks), tasks, written, hub)...)
	}
	return append(lost, lostMembers(path, extended, hub, members(back[fieldExtended]))...)
}

// lostOfTasks returns what is lost of the tasks that extended lists. The hub has them in the same
// order, without those of roles that the job does not have.
func lostOfTasks(path *field.Path, listed []any, written, hub map[string]any) []string {
	var lost []string
	stored, _ := hub[fieldTasks].([]any)
	seen := map[string]bool{}
	for i, entry := range listed {
		task := members(entry)
		role, _ := task[fieldType].(string)
		_, has := written[role].(map[string]any)
		removed := isRole(role) && !seen[role] && !has
		seen[role] = true
		if !removed {
			// The hub has fewer tasks if v2alpha1 does not accept the list.
			kept := stored[:min(1, len(stored))]
			lost = append(lost, lostValue(path.Index(i), entry, kept)...)
			stored = stored[len(kept):]
			continue
		}
		maps.DeleteFunc(task, func(key string, _ any) bool {
			return key == fieldType || key == fieldName || key == fieldReplicas
		})
		lost = append(lost, lostMembers(path.Index(i), task)...)
	}
	return lost
}

func lostOfStatus(written, hub, back map[string]any) []string {
	path := field.NewPath("status")
	extended := members(written[fieldExtended])
	delete(written, fieldExtended)
	for _, key := range []string{fieldPhase, fieldTaskStatus} {
		value, _ := json.Marshal(extended[key])
		member := object{{key, value}}
		if decodes[v2alpha1.DIJobStatus](member.bytes()) {
			delete(extended, key)
		}
	}
	lost := lostMembers(path, written, hub, back)
	return append(lost, lostMembers(path.Child(fieldExtended), extended, hub)...)
}

// lostMembers returns the paths of the members that none of the other objects has.
func lostMembers(path *field.Path, written map[string]any, others ...map[string]any) []string {
	var lost []string
	for _, key := range slices.Sorted(maps.Keys(written)) {
		var candidates []any
		for _, other := range others {
			if candidate, ok := other[key]; ok {
				candidates = append(candidates, candidate)
			}
		}
		lost = append(lost, lostValue(path.Child(key), written[key], candidates)...)
	}
	return lost
}

// lostValue returns the path of a value that no candidate contains, or the paths of its lost
// members. Objects are compared by their members only, so that each value is compared once at any
// depth.
func lostValue(path *field.Path, written any, candidates []any) []string {
	if written == nil {
		return nil
	}
	content, isObject := written.(map[string]any)
	var objects []map[string]any
	for _, candidate := range candidates {
		if object, ok := candidate.(map[string]any); ok {
			objects = append(objects, object)
		} else if !isObject && reflect.DeepEqual(candidate, written) {
			return nil
		}
	}
	if isObject && len(objects) > 0 {
		return lostMembers(path, content, objects...)
	}
	return []string{path.String()}
}
