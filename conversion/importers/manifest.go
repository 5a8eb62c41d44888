// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// manifest contains the part of a manifest that is not imported yet, and the result so far.
type manifest struct {
	rest   map[string]any
	result Result
	// err is the first error. An importer that continues after an error reads zero values.
	err error
}

// failf records an error if it is the first.
func (m *manifest) failf(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

func (m *manifest) lost(path Path, value any, why, do string) {
	m.result.Lost = append(m.result.Lost, Finding{Path: path, Value: value, Why: why, Do: do})
}

func (m *manifest) note(path Path, value any, why, do string) {
	m.result.Notes = append(m.result.Notes, Finding{Path: path, Value: value, Why: why, Do: do})
}

// noteAgain is note for a finding that applies to several paths. The advice is given once.
func (m *manifest) noteAgain(path Path, value any, why, do string) {
	if slices.ContainsFunc(m.result.Notes, func(f Finding) bool { return f.Why == why && f.Do == do }) {
		do = ""
	}
	m.note(path, value, why, do)
}

func (m *manifest) moved(from, to Path) {
	m.result.Moves = append(m.result.Moves, Move{From: from, To: to})
}

// parent returns the object that contains the path, and nil if there is none.
func (m *manifest) parent(path Path) map[string]any {
	at := m.rest
	for _, step := range path[:len(path)-1] {
		next, ok := at[step].(map[string]any)
		if !ok {
			return nil
		}
		at = next
	}
	return at
}

// take removes a value from the manifest and returns it, or nil if there is none.
func (m *manifest) take(path Path) any {
	parent := m.parent(path)
	value := parent[path[len(path)-1]]
	delete(parent, path[len(path)-1])
	return value
}

// members returns the names in an object of the manifest, sorted.
func (m *manifest) members(path Path) []string {
	object, _ := m.parent(path)[path[len(path)-1]].(map[string]any)
	return slices.Sorted(maps.Keys(object))
}

// takeAs removes a value from the manifest and returns it as a type, or nil if there is none.
func takeAs[T any](m *manifest, path Path) *T {
	value := m.take(path)
	if value == nil {
		return nil
	}
	raw, typed := m.encode(value), new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, typed); err != nil {
		m.failf("%s: %s is no %s", path, raw, typeName[T]())
		return nil
	}
	return typed
}

// typeName returns a description of the expected type for users.
func typeName[T any]() string {
	switch any(*new(T)).(type) {
	case int32, int64:
		return "whole number that fits"
	case bool:
		return "true or false"
	case string:
		return "text"
	}
	return "list of what is known"
}

// takeTo is takeAs for a value that has a different path in the result.
func takeTo[T any](m *manifest, from, to Path) *T {
	typed := takeAs[T](m, from)
	if typed != nil {
		m.moved(from, to)
	}
	return typed
}

// assign moves a value to a field whose path may be the same. It omits a value that equals the
// default.
func assign[T comparable](m *manifest, field *T, from, to Path) {
	var absent T
	value := takeAs[T](m, from)
	switch {
	case value == nil:
	case *value == absent:
		m.note(from, *value, "left out: is the default", "")
	default:
		*field = *value
		m.moved(from, to)
	}
}

// takeObject removes an object from the manifest and returns it, or nil if there is none.
func (m *manifest) takeObject(path Path) map[string]any {
	value := m.take(path)
	object, ok := value.(map[string]any)
	if !ok && value != nil {
		m.failf("%s: %v is no object", path, value)
	}
	return object
}

// takeMetadata imports the metadata for an object of another kind. It omits what the API server
// wrote about the old object, because the API server would reject it.
func (m *manifest) takeMetadata() map[string]any {
	at := Path{"metadata"}
	metadata := m.takeObject(at)
	for _, key := range []string{
		"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
	} {
		m.drop(metadata, at, key, "the API server's, about the old object")
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	m.drop(annotations, at.Child("annotations"), "kubectl.kubernetes.io/last-applied-configuration", "kubectl's, about the old object")
	return metadata
}

func (m *manifest) drop(object map[string]any, at Path, key, why string) {
	if _, ok := object[key]; ok {
		delete(object, key)
		m.note(at.Child(key), nil, "left out: "+why, "")
	}
}

// dropStatus omits the status, which contains observations of the other operator.
func (m *manifest) dropStatus() {
	if m.take(Path{"status"}) != nil {
		m.note(Path{"status"}, nil, "left out: what another operator saw of its own pods; this one observes again", "")
	}
}

// reportRest reports the values that were not imported.
func (m *manifest) reportRest() {
	delete(m.rest, "apiVersion")
	delete(m.rest, "kind")
	eachLeaf(nil, m.rest, func(at Path, value any) {
		m.lost(at, value, "a DIJob has no such field", "")
	})
}

// eachLeaf calls the function for each value that is neither an object nor an array, in the order
// of the paths.
func eachLeaf(at Path, value any, do func(Path, any)) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			eachLeaf(at.Child(key), value[key], do)
		}
	case []any:
		for i, item := range value {
			eachLeaf(at.Child(strconv.Itoa(i)), item, do)
		}
	default:
		do(at, value)
	}
}

// rawObject returns a template in the type that the API uses.
func (m *manifest) rawObject(value map[string]any) v2alpha1.RawObject {
	return v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: m.encode(value)}}
}

// containers returns the containers of a pod template by index. An entry is nil if it is not an
// object.
func containers(template map[string]any) []map[string]any {
	spec, _ := template["spec"].(map[string]any)
	return objects(spec["containers"])
}

// ports returns the ports of a container by index. An entry is nil if it is not an object.
func ports(container map[string]any) []map[string]any {
	return objects(container["ports"])
}

func objects(list any) []map[string]any {
	listed, _ := list.([]any)
	found := make([]map[string]any, len(listed))
	for i := range listed {
		found[i], _ = listed[i].(map[string]any)
	}
	return found
}
