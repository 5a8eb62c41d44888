// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// NewerFields is the spec of a template as its author wrote it, if it has fields that the Go types
// of pods do not know. The API server may know them. It is nil if there are none.
type NewerFields map[string]any

// source is the JSON that a template was decoded from.
type source struct {
	template v2alpha1.RawObject
	volumes  []v2alpha1.RawObject
}

// newerFields reads the newer fields of a source that has been decoded before.
func (s *source) newerFields() NewerFields {
	unknown := hasUnknown(s.template.Raw, &corev1.PodTemplateSpec{})
	for i := range s.volumes {
		unknown = unknown || hasUnknown(s.volumes[i].Raw, &corev1.Volume{})
	}
	if !unknown {
		return nil
	}
	var template map[string]any
	// The source has been decoded before, so there is no error.
	_ = utiljson.Unmarshal(s.template.Raw, &template)
	spec, _ := template["spec"].(map[string]any)
	volumes, _ := spec["volumes"].([]any)
	for i := range s.volumes {
		var volume any
		_ = utiljson.Unmarshal(s.volumes[i].Raw, &volume)
		volumes = append(volumes, volume)
	}
	if len(s.volumes) > 0 {
		spec["volumes"] = volumes
	}
	return spec
}

func hasUnknown(raw []byte, into any) bool {
	unknown, _ := kjson.UnmarshalStrict(raw, into, kjson.DisallowUnknownFields)
	return len(unknown) > 0
}

// Over returns the pod with the unknown fields of the template that it was built from, in their
// positions. Nothing else of the pod changes.
func (n NewerFields) Over(pod *corev1.Pod) (map[string]any, error) {
	whole, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, fmt.Errorf("encoding pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	spec, ok := whole["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("encoding pod %s/%s: it has no spec", pod.Namespace, pod.Name)
	}
	overlayStruct(spec, n, reflect.TypeFor[corev1.PodSpec]())
	return whole, nil
}

// overlay adds the unknown fields of a value to the value that was built from it. Both are of one
// Go type.
func overlay(built, written any, goType reflect.Type, mergeKey string) {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	switch builtValue := built.(type) {
	case map[string]any:
		writtenValue, ok := written.(map[string]any)
		// A type that encodes itself knows all of its fields.
		if ok && goType.Kind() == reflect.Struct && !reflect.PointerTo(goType).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			overlayStruct(builtValue, writtenValue, goType)
		}
	case []any:
		writtenItems, _ := written.([]any)
		for i, item := range writtenItems {
			if goType.Kind() == reflect.Slice {
				overlay(counterpart(builtValue, item, i, mergeKey), item, goType.Elem(), "")
			}
		}
	}
}

func overlayStruct(built, written map[string]any, goType reflect.Type) {
	fields := map[string]reflect.StructField{}
	fieldsOf(goType, fields)
	for key, member := range written {
		known, ok := fields[key]
		if !ok {
			built[key] = runtime.DeepCopyJSONValue(member)
			continue
		}
		if _, isObject := member.(map[string]any); isObject && built[key] == nil {
			// The encoding may omit an object that has only newer fields.
			empty := map[string]any{}
			if overlay(empty, member, known.Type, ""); len(empty) > 0 {
				built[key] = empty
			}
			continue
		}
		overlay(built[key], member, known.Type, known.Tag.Get("patchMergeKey"))
	}
}

// counterpart returns the item of a built list that was built from a written one. The operator adds
// items before and after the written ones, and its variables replace some of them.
func counterpart(built []any, written any, index int, mergeKey string) any {
	if index < len(built) && (mergeKey == "" || isSameItem(built[index], written, mergeKey)) {
		return built[index]
	}
	if mergeKey != "" {
		for _, candidate := range built {
			if isSameItem(candidate, written, mergeKey) {
				return candidate
			}
		}
	}
	return nil
}

func isSameItem(built, written any, mergeKey string) bool {
	a, isObject := built.(map[string]any)
	b, alsoObject := written.(map[string]any)
	if !isObject || !alsoObject || a[mergeKey] != b[mergeKey] {
		return false
	}
	// A variable of the operator has the same name as the author's, and another value.
	valueOfA, _ := a["value"].(string)
	valueOfB, _ := b["value"].(string)
	return valueOfA == valueOfB
}

// fieldsOf collects the fields of a struct by their JSON names.
func fieldsOf(goType reflect.Type, into map[string]reflect.StructField) {
	for i := range goType.NumField() {
		structField := goType.Field(i)
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case structField.Anonymous && name == "":
			fieldsOf(structField.Type, into)
		case name != "" && name != "-":
			into[name] = structField
		}
	}
}
