// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jsontype

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Members returns the members of a JSON object, nil for any other value.
func Members(raw []byte) map[string]json.RawMessage {
	var parsed map[string]json.RawMessage
	if json.Unmarshal(raw, &parsed) != nil {
		return nil
	}
	return parsed
}

// IsSet reports whether a member is present and not null.
func IsSet(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null"
}

// DecodeAny decodes JSON and keeps the spelling of numbers.
func DecodeAny(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// EqualButEmpty reports whether two JSON values are equal if null and empty members
// are dropped. Typed clients write such members for every field that they know.
func EqualButEmpty(a, b json.RawMessage) bool {
	var decodedA, decodedB any
	// Absent values stay nil; others were decoded as parts of their objects.
	_ = json.Unmarshal(a, &decodedA)
	_ = json.Unmarshal(b, &decodedB)
	return reflect.DeepEqual(withoutEmpty(decodedA), withoutEmpty(decodedB))
}

// withoutEmpty returns a decoded JSON value without null and empty members, and nil
// for an empty value.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, member := range value {
			if member = withoutEmpty(member); member != nil {
				kept[key] = member
			}
		}
		if len(kept) > 0 {
			return kept
		}
		return nil
	case []any:
		if len(value) == 0 {
			return nil
		}
		kept := make([]any, len(value))
		for i, item := range value {
			// Items keep their indexes.
			kept[i] = withoutEmpty(item)
		}
		return kept
	case string:
		if value == "" {
			return nil
		}
	}
	return value
}

// IsEmpty reports whether a decoded value is null or has no content.
func IsEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

// IsBlank reports whether a decoded value is empty or an object of blank members.
func IsBlank(value any) bool {
	members, isObject := value.(map[string]any)
	for _, member := range members {
		if !IsBlank(member) {
			return false
		}
	}
	return isObject || IsEmpty(value)
}
