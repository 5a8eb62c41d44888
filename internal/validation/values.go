// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// members are the members of a JSON object, and nil for anything else.
func members(raw []byte) map[string]json.RawMessage {
	var parsed map[string]json.RawMessage
	if json.Unmarshal(raw, &parsed) != nil {
		return nil
	}
	return parsed
}

// isSet reports whether a member is there and not null.
func isSet(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null"
}

// decodeAny decodes JSON and leaves numbers as they are written.
func decodeAny(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// saysTheSame reports whether two JSON values differ in nothing but members that
// are absent in one and null or empty in the other: typed clients write such
// members for all that they know and did not find.
func saysTheSame(a, b json.RawMessage) bool {
	var decodedA, decodedB any
	// Absent values stay nil; others were decoded as parts of their objects.
	_ = json.Unmarshal(a, &decodedA)
	_ = json.Unmarshal(b, &decodedB)
	return reflect.DeepEqual(withoutEmpty(decodedA), withoutEmpty(decodedB))
}

// withoutEmpty returns a decoded JSON value without members that are null or
// empty, and nil for a value that is so itself.
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
			// Items keep their places.
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

// isEmpty reports whether a decoded value is null or has no content.
func isEmpty(value any) bool {
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

// saysNothing reports whether a decoded value is null, or holds nothing else.
func saysNothing(value any) bool {
	members, isObject := value.(map[string]any)
	for _, member := range members {
		if !saysNothing(member) {
			return false
		}
	}
	return isObject || isEmpty(value)
}
