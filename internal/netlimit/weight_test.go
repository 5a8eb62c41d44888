// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"encoding/json"
	"strings"
	"testing"
)

// valuesIn counts the values that a decoder produces from a text.
func valuesIn(value any) int {
	count := 1
	switch value := value.(type) {
	case map[string]any:
		for _, member := range value {
			count += valuesIn(member)
		}
	case []any:
		for _, item := range value {
			count += valuesIn(item)
		}
	}
	return count
}

func FuzzValues(f *testing.F) {
	for _, text := range []string{
		`1`, `{}`, `[]`, `[{},{}]`, `{"a":[1,"]},{[",null],"b":{"c":{}}}`, `["\"",{}]`, `["\\",{}]`, `["\\\"",{}]`, `"`, `"\"`, `[`, `{"a`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		counted := Values(text)
		if counted < 1 || counted > len(text)+1 {
			t.Fatalf("%q: %d", text, counted)
		}
		var value any
		if json.Unmarshal(text, &value) != nil {
			return
		}
		// A decoder decodes all members with the same name and keeps the last.
		if decoded := valuesIn(value); counted < decoded {
			t.Fatalf("%q: %d counted, %d decoded", text, counted, decoded)
		}
	})
}

// depthOf returns the nesting of a decoded value.
func depthOf(value any) int {
	most := -1
	switch value := value.(type) {
	case map[string]any:
		for _, member := range value {
			most = max(most, depthOf(member))
		}
	case []any:
		for _, item := range value {
			most = max(most, depthOf(item))
		}
	default:
		return 0
	}
	return max(most, 0) + 1
}

func FuzzDepth(f *testing.F) {
	for _, text := range []string{`1`, `{}`, `[[],{"a":[]}]`, `"[[["`, `{"\\":["[",{}]}`, `]]]]`, strings.Repeat("[", 99) + strings.Repeat("]", 99)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		counted := Depth(text)
		var value any
		if json.Unmarshal(text, &value) != nil {
			return
		}
		// A decoder drops all members with the same name but the last.
		if decoded := depthOf(value); counted < decoded {
			t.Fatalf("%q: depth %d counted, %d decoded", text, counted, decoded)
		}
	})
}

func TestValuesAreCountedWithoutMemory(t *testing.T) {
	text := []byte(`{"a":[` + strings.Repeat(`{"name":"a\"","value":"\\"},`, 1000) + `{}]}`)
	allocations := testing.AllocsPerRun(10, func() {
		if counted := Values(text); counted < 3000 || counted > 3010 {
			t.Errorf("%d", counted)
		}
	})
	if allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}
