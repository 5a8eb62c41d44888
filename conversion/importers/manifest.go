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

// manifest is the part of a manifest that is not imported yet, and the result so far.
type manifest struct {
	rest   map[string]any
	result Result
	// err is the first error. An importer that continues after one reads zero values.
	err error
}

// failf records an error, unless there is one.
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

// noteAgain is note for what holds in several places: the advice is given once.
func (m *manifest) noteAgain(path Path, value any, why, do string) {
	if slices.ContainsFunc(m.result.Notes, func(f Finding) bool { return f.Why == why && f.Do == do }) {
		do = ""
	}
	m.note(path, value, why, do)
}

func (m *manifest) moved(from, to Path) {
	m.result.Moves = append(m.result.Moves, Move{From: from, To: to})
}

// parent returns the object that holds the place, nil if there is none.
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

// take takes a value out of the manifest, nil if there is none.
func (m *manifest) take(path Path) any {
	parent := m.parent(path)
	value := parent[path[len(path)-1]]
	delete(parent, path[len(path)-1])
	return value
}

// members are the names in an object of the manifest, sorted.
func (m *manifest) members(path Path) []string {
	object, _ := m.parent(path)[path[len(path)-1]].(map[string]any)
	return slices.Sorted(maps.Keys(object))
}

// takeAs takes a value of a type out of the manifest, nil if there is none.
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

// typeName says to users what is wanted.
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

// takeTo is takeAs for what has a place of its own in the result.
func takeTo[T any](m *manifest, from, to Path) *T {
	typed := takeAs[T](m, from)
	if typed != nil {
		m.moved(from, to)
	}
	return typed
}

// assign takes a value to another path, or to the same. A value that equals the
// default is left out.
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

// takeObject takes an object out of the manifest, nil if there is none.
func (m *manifest) takeObject(path Path) map[string]any {
	value := m.take(path)
	object, ok := value.(map[string]any)
	if !ok && value != nil {
		m.failf("%s: %v is no object", path, value)
	}
	return object
}

// takeMetadata takes the metadata of what becomes an object of another kind:
// less what the API server wrote about the old one, which it would refuse.
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

// dropStatus leaves out what the other operator observed.
func (m *manifest) dropStatus() {
	if m.take(Path{"status"}) != nil {
		m.note(Path{"status"}, nil, "left out: what another operator saw of its own pods; this one observes again", "")
	}
}

// reportRest reports what nothing took.
func (m *manifest) reportRest() {
	delete(m.rest, "apiVersion")
	delete(m.rest, "kind")
	eachLeaf(nil, m.rest, func(at Path, value any) {
		m.lost(at, value, "a DIJob has no such field", "")
	})
}

// eachLeaf calls the function for each value that is neither object nor array,
// in the order of the paths.
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

// rawObject is a template as the API holds it.
func (m *manifest) rawObject(value map[string]any) v2alpha1.RawObject {
	return v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: m.encode(value)}}
}

// containers are the containers of a pod template that are objects, by index.
func containers(template map[string]any) []map[string]any {
	spec, _ := template["spec"].(map[string]any)
	return objects(spec["containers"])
}

// ports are the ports of a container that are objects, by index.
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
