// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Lost returns the paths of what a job of v1alpha1, which is JSON, says and the
// stored form does not keep, sorted within each object. An object that came from conversion, and
// one without extended, loses nothing. It fails where Convert fails.
//
// Not lost are the letter case of cleanPodPolicy, which is made v2alpha1's, and
// what an edit through v1alpha1 has overruled: a task listed in extended whose
// role the job no longer has, and the phase and counts of a status that
// v1alpha1 has since written.
func Lost(raw []byte) ([]string, error) {
	toHub, err := Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	fromHub, err := Convert(toHub, v1alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	var jobs [3]map[string]any
	for i, part := range [][]byte{raw, toHub, fromHub} {
		if jobs[i], err = decodeJob(part); err != nil {
			return nil, err
		}
	}
	written, hub, back := jobs[0], jobs[1], jobs[2]
	var lost []string
	lost = append(lost, lostOfSpec(members(written["spec"]), members(hub["spec"]), members(back["spec"]))...)
	return append(lost, lostOfStatus(members(written["status"]), members(hub["status"]), members(back["status"]))...), nil
}

// decodeJob returns JSON as plain values, numbers as they are written.
func decodeJob(raw []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	job := map[string]any{}
	if err := decoder.Decode(&job); err != nil {
		return nil, fmt.Errorf("decoding the job: %w", err)
	}
	return job, nil
}

// members returns those of an object, none for what is no object.
func members(value any) map[string]any {
	object, _ := value.(map[string]any)
	return object
}

func lostOfSpec(written, hub, back map[string]any) []string {
	path := field.NewPath("spec")
	written = maps.Clone(written)
	extended := maps.Clone(members(written[fieldExtended]))
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

// lostOfTasks returns what is lost of the tasks that extended lists. The hub
// has them in the same order, less those of roles that the job does not have.
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
		switch {
		case removed:
			task = maps.Clone(task)
			maps.DeleteFunc(task, func(key string, _ any) bool {
				return key == fieldType || key == fieldName || key == fieldReplicas
			})
			lost = append(lost, lostMembers(path.Index(i), task)...)
		case len(stored) == 0:
			lost = append(lost, path.Index(i).String())
		default:
			lost = append(lost, lostValue(path.Index(i), entry, stored[:1])...)
			stored = stored[1:]
		}
	}
	return lost
}

func lostOfStatus(written, hub, back map[string]any) []string {
	path := field.NewPath("status")
	written = maps.Clone(written)
	extended := maps.Clone(members(written[fieldExtended]))
	delete(written, fieldExtended)
	for _, key := range []string{fieldPhase, fieldTaskStatus} {
		member := object{{key, encodeAny(extended[key])}}
		if decodes[v2alpha1.DIJobStatus](member.bytes()) {
			delete(extended, key)
		}
	}
	lost := lostMembers(path, written, hub, back)
	return append(lost, lostMembers(path.Child(fieldExtended), extended, hub, members(back[fieldExtended]))...)
}

// encodeAny encodes what was decoded from JSON.
func encodeAny(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		// What was decoded encodes.
		return []byte("null")
	}
	return raw
}

// lostMembers returns the paths of those members that none of the other objects
// has.
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

// lostValue returns the path of a value that no candidate holds, or of those of
// its members.
func lostValue(path *field.Path, written any, candidates []any) []string {
	var objects []map[string]any
	for _, candidate := range candidates {
		if holds(candidate, written) {
			return nil
		}
		if object, ok := candidate.(map[string]any); ok {
			objects = append(objects, object)
		}
	}
	content, isObject := written.(map[string]any)
	switch {
	case written == nil:
		return nil
	case isObject && len(objects) > 0:
		return lostMembers(path, content, objects...)
	}
	return []string{path.String()}
}

// holds says whether a value says all that the written one says. A null says
// nothing.
func holds(value, written any) bool {
	switch written := written.(type) {
	case nil:
		return true
	case map[string]any:
		object, ok := value.(map[string]any)
		for key, member := range written {
			ok = ok && holds(object[key], member)
		}
		return ok
	case []any:
		list, ok := value.([]any)
		ok = ok && len(list) == len(written)
		for i := 0; ok && i < len(written); i++ {
			ok = holds(list[i], written[i])
		}
		return ok
	default:
		return value == written
	}
}
