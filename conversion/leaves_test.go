// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// apiField is a field of an API type, found by reflection. Its path has [] for each item of a list
// and {} for each value of a map.
type apiField struct {
	path string
	// fields are the fields of an object, by name.
	fields map[string]*apiField
	// each is the item of a list or the value of a map.
	each *apiField
	// kind is the kind of a leaf. Other fields have none.
	kind reflect.Kind
}

func fieldsOf[T any]() *apiField {
	return fieldOfType(reflect.TypeFor[T](), "")
}

func fieldOfType(t reflect.Type, path string) *apiField {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	found := &apiField{path: path}
	switch {
	case t == reflect.TypeFor[metav1.Time](), t == reflect.TypeFor[metav1.MicroTime]():
		found.kind = reflect.Interface
	case t == reflect.TypeFor[resource.Quantity](), t == reflect.TypeFor[intstr.IntOrString]():
		found.kind = reflect.Uint64
	case t == reflect.TypeFor[v1alpha1.RawObject](), t == reflect.TypeFor[v2alpha1.RawObject](), t == reflect.TypeFor[metav1.ObjectMeta]():
		found.kind = reflect.Struct
	case t.Kind() == reflect.Struct:
		found.fields = map[string]*apiField{}
		for i := range t.NumField() {
			field := t.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" {
				found.fields[name] = fieldOfType(field.Type, strings.TrimPrefix(path+"."+name, "."))
			}
		}
	case t.Kind() == reflect.Slice:
		found.each = fieldOfType(t.Elem(), path+"[]")
	case t.Kind() == reflect.Map:
		found.each = fieldOfType(t.Elem(), path+"{}")
	default:
		found.kind = t.Kind()
	}
	return found
}

// leaves returns the fields without fields of their own.
func (f *apiField) leaves() []*apiField {
	if f.kind != reflect.Invalid {
		return []*apiField{f}
	}
	var found []*apiField
	for _, field := range f.fields {
		found = append(found, field.leaves()...)
	}
	if f.each != nil {
		found = append(found, f.each.leaves()...)
	}
	return found
}

// mark records the leaves that a value, decoded from JSON, sets.
func (f *apiField) mark(value any, set map[*apiField]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			field := f.fields[key]
			if f.each != nil {
				field = f.each
			}
			if field != nil {
				field.mark(member, set)
			}
		}
		set[f] = set[f] || len(value) > 0
	case []any:
		for _, item := range value {
			f.each.mark(item, set)
		}
	case nil:
	default:
		set[f] = set[f] || value != "" && value != false && value != json.Number("0")
	}
}

// checkLeaves fails for every leaf of the type that fewer than one in a hundred of the objects
// sets.
func checkLeaves(t *testing.T, root *apiField, make func(g *generator) map[string]any) {
	t.Helper()
	const objects = 4 * shardSize
	g := newGenerator(*firstSeed)
	counts := map[*apiField]int{}
	for range objects {
		set := map[*apiField]bool{}
		root.mark(make(g), set)
		for field, isSet := range set {
			if isSet {
				counts[field]++
			}
		}
	}
	leaves := root.leaves()
	if len(leaves) < 15 {
		t.Errorf("the type has %d leaves only; they are not all found", len(leaves))
	}
	for _, leaf := range leaves {
		if share := float64(counts[leaf]) / objects; share < 0.01 {
			t.Errorf("%s is set in %.2f %% of the random objects; at least 1 %% is wanted", leaf.path, 100*share)
		}
	}
}

func TestTheRandomV2JobsSetEveryField(t *testing.T) {
	t.Parallel()
	checkLeaves(t, fieldsOf[v2alpha1.DIJob](), func(g *generator) map[string]any { return g.hub(t) })
}

func TestTheRandomV1JobsSetEveryField(t *testing.T) {
	t.Parallel()
	checkLeaves(t, fieldsOf[v1alpha1.DIJob](), func(g *generator) map[string]any { return g.anyV1(t) })
}
