// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/quantity"
)

// CanonicalCleanPodPolicy returns the policy with this name in any letter case, and false if there
// is none.
func CanonicalCleanPodPolicy(written string) (v2alpha1.CleanPodPolicy, bool) {
	for _, policy := range []v2alpha1.CleanPodPolicy{
		v2alpha1.CleanPodPolicyRunning, v2alpha1.CleanPodPolicyAll, v2alpha1.CleanPodPolicyNone,
	} {
		if strings.EqualFold(written, string(policy)) {
			return policy, true
		}
	}
	return "", false
}

// held returns the members of extended that fit the type of v2alpha1. The hub's schema does not
// validate extended, and one value of a wrong type in storage would break the watch of every typed
// client.
func held[T any](extended []byte) object {
	f := fitting{}
	known := f.fieldsOf(reflect.TypeFor[T]())
	var kept object
	members, _ := parseObject(extended)
	for _, m := range members {
		if of, ok := known[m.key]; !ok || f.fits(m.value, of) {
			kept = append(kept, m)
		}
	}
	return kept
}

func decodes[T any](raw []byte) bool {
	return fitting{}.fits(raw, reflect.TypeFor[T]())
}

// isUnknown returns a predicate that reports whether the type has no field with a member's name.
// The predicate is not safe for concurrent use.
func isUnknown[T any]() func(member) bool {
	var known map[string]reflect.Type
	return func(m member) bool {
		if known == nil {
			known = fitting{}.fieldsOf(reflect.TypeFor[T]())
		}
		_, ok := known[m.key]
		return !ok
	}
}

// fitting checks whether types accept values, without decoding them: a decoded list of empty
// objects takes 60 times the size of its JSON. The map caches the fields of each struct type.
type fitting map[reflect.Type]map[string]reflect.Type

// fits reports whether valid JSON decodes into a type.
func (f fitting) fits(raw []byte, of reflect.Type) bool {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	s := scanner{data: raw}
	switch kind, first := of.Kind(), s.peek(); {
	case of == reflect.TypeFor[resource.Quantity]():
		return isQuantity(raw)
	case readsItself(of):
		return decodesInto(raw, of)
	case isAny(kind, first):
		return true
	case kind == reflect.Struct:
		fields := f.fieldsOf(of)
		return first == '{' && f.fitMembers(raw, func(key string) reflect.Type { return fields[key] })
	case kind == reflect.Map && of.Key().Kind() == reflect.String && !readsItself(of.Key()):
		return first == '{' && f.fitMembers(raw, func(string) reflect.Type { return of.Elem() })
	case kind == reflect.Slice && of.Elem().Kind() != reflect.Uint8:
		return first == '[' && f.fitItems(raw, of.Elem())
	}
	return decodesInto(raw, of)
}

// isAny reports whether a value decodes without a further check: null, or a value of an interface or a string.
func isAny(kind reflect.Kind, first byte) bool {
	return first == 'n' || kind == reflect.Interface || kind == reflect.String && first == '"'
}

// fitMembers reports whether the members that have a type fit it.
func (f fitting) fitMembers(raw []byte, typeOf func(key string) reflect.Type) bool {
	s := scanner{data: raw}
	s.open('{')
	for s.more('}') {
		key, value := s.key(), s.value()
		if of := typeOf(key); of != nil && !f.fits(value, of) {
			return false
		}
	}
	return true
}

func (f fitting) fitItems(raw []byte, of reflect.Type) bool {
	s := scanner{data: raw}
	s.open('[')
	for s.more(']') {
		if !f.fits(s.value(), of) {
			return false
		}
	}
	return true
}

// readsItself reports whether a type has its own unmarshaler.
func readsItself(of reflect.Type) bool {
	pointer := reflect.PointerTo(of)
	return pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) || pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isQuantity reports whether valid JSON is a quantity that is cheap to decode: nothing cancels the
// decoder of 1e-1000000000.
func isQuantity(raw []byte) bool {
	written := string(raw)
	if written == "" || written[0] == '{' || written[0] == '[' {
		return false
	}
	if written[0] == '"' {
		written = text(raw)
	}
	return quantity.Check(written) == nil && decodesInto(raw, reflect.TypeFor[resource.Quantity]())
}

func decodesInto(raw []byte, of reflect.Type) bool {
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, reflect.New(of).Interface()) == nil
}

// fieldsOf returns the fields of a struct by their JSON names.
func (f fitting) fieldsOf(of reflect.Type) map[string]reflect.Type {
	fields, known := f[of]
	if known {
		return fields
	}
	fields = map[string]reflect.Type{}
	for _, structField := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case name == "-" || !structField.IsExported() || structField.Anonymous && name == "":
		case name == "":
			fields[structField.Name] = structField.Type
		default:
			fields[name] = structField.Type
		}
	}
	f[of] = fields
	return fields
}
