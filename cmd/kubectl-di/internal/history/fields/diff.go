// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fields compares and changes the fields of recorded manifests, in either version. It is pure.
package fields

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"opendilab.org/di-orchestrator/internal/names"
)

// Difference is a field that differs. It has the value of each job as JSON; "" in a job without the field.
type Difference struct {
	Field  string   `json:"field"`
	Values []string `json:"values"`
}

// Differences returns the fields of manifests that differ from the first one, sorted. Entries of lists are matched by
// name, or by type, as tasks are: an entry before them does not make all others differ. Names and
// namespaces of the jobs are no difference.
func Differences(manifests ...json.RawMessage) []Difference {
	flat := make([]map[string]string, len(manifests))
	all := map[string]string{}
	for i, manifest := range manifests {
		flat[i] = map[string]string{}
		var content map[string]any
		if utiljson.Unmarshal(manifest, &content) != nil {
			continue
		}
		if metadata, isMap := content["metadata"].(map[string]any); isMap {
			delete(metadata, "name")
			delete(metadata, "namespace")
			Clean(metadata)
		}
		flatten("", content, flat[i])
		maps.Copy(all, flat[i])
	}
	different := []Difference{}
	for _, field := range slices.Sorted(maps.Keys(all)) {
		one := Difference{Field: field}
		isSame := true
		for _, fields := range flat {
			one.Values = append(one.Values, fields[field])
			isSame = isSame && fields[field] == flat[0][field]
		}
		if !isSame {
			different = append(different, one)
		}
	}
	return different
}

// flatten notes the values of all fields below a path. A list of other things than objects is one value.
func flatten(path string, value any, into map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			field := key
			if path != "" {
				field = path + "." + key
			}
			flatten(field, below, into)
		}
		if len(value) > 0 {
			return
		}
	case []any:
		if keys := keysOf(value); keys != nil {
			for i, below := range value {
				flatten(fmt.Sprintf("%s[%s]", path, keys[i]), below, into)
			}
			return
		}
	}
	encoded, err := json.Marshal(value)
	if err == nil {
		into[path] = string(encoded)
	}
}

// keysOf returns the key of each entry of a list of objects: its name, or else its type, or else its
// place. It is nil for other lists.
func keysOf(list []any) []string {
	if len(list) == 0 {
		return nil
	}
	keys, places, seen := make([]string, len(list)), make([]string, len(list)), map[string]bool{}
	areUnique := true
	for i, entry := range list {
		object, isObject := entry.(map[string]any)
		if !isObject {
			return nil
		}
		key := keyOf(object)
		areUnique = areUnique && key != "" && !seen[key]
		keys[i], places[i], seen[key] = key, strconv.Itoa(i), true
	}
	if areUnique {
		return keys
	}
	return places
}

// keyOf returns what names an entry of a list; "" if nothing does.
func keyOf(entry map[string]any) string {
	for _, field := range []string{"name", "type"} {
		if text, isText := entry[field].(string); isText && text != "" {
			return text
		}
	}
	return ""
}

// Clean removes from metadata what the system wrote.
func Clean(metadata map[string]any) {
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "selfLink", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
		"ownerReferences", "finalizers", "generateName",
	} {
		delete(metadata, field)
	}
	annotations, isMap := metadata["annotations"].(map[string]any)
	if !isMap {
		return
	}
	for _, written := range []string{corev1.LastAppliedConfigAnnotation, names.AnnotationCreator, names.AnnotationRequests} {
		delete(annotations, written)
	}
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}
