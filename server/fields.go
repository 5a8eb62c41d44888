// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/internal/quantity"
)

const (
	// maxShown bounds how much of a wrong value is shown.
	maxShown = 64
	// maxWrong bounds of how many wrong fields it is told: an answer must not be
	// many times as large as the body that it is about.
	maxWrong = 8
)

// fieldReader reads the fields of a body by name, and remembers what is wrong with
// each: a client learns of all at once, with the value and what would be right.
// An absent field and a null are the same.
type fieldReader struct {
	wrong []string
	// more is how many are wrong beyond those that are told.
	more int
}

// err is the failure that tells of all that is wrong; nil where nothing is.
func (f *fieldReader) err() error {
	if len(f.wrong) == 0 {
		return nil
	}
	told := strings.Join(f.wrong, "; ")
	if f.more > 0 {
		told += fmt.Sprintf("; and %d more", f.more)
	}
	return failure(KindInvalid, "%s", told)
}

func (f *fieldReader) add(name, format string, arguments ...any) {
	if len(f.wrong) == maxWrong {
		f.more++
		return
	}
	f.wrong = append(f.wrong, name+": "+fmt.Sprintf(format, arguments...))
}

// mistyped says that a value is none of those that a field may have.
func (f *fieldReader) mistyped(name string, value json.RawMessage, right string) {
	f.add(name, "%s is not %s", shown(value), right)
}

func shown(value json.RawMessage) string {
	if len(value) <= maxShown {
		return string(value)
	}
	return strings.ToValidUTF8(string(value[:maxShown]), "") + "..."
}

func isAbsent(value json.RawMessage) bool {
	return len(value) == 0 || bytes.Equal(value, []byte("null"))
}

// object reads an object into a struct of raw fields; keys that it does not
// know mean nothing.
func (f *fieldReader) object(name string, value json.RawMessage, into any) {
	if !isAbsent(value) && (value[0] != '{' || json.Unmarshal(value, into) != nil) {
		f.mistyped(name, value, "an object")
	}
}

// required reads a string that must be there.
func (f *fieldReader) required(name string, value json.RawMessage) string {
	var text string
	switch {
	case isAbsent(value):
		f.add(name, "is required")
	case json.Unmarshal(value, &text) != nil:
		f.mistyped(name, value, "a string")
	case text == "":
		f.add(name, "is empty: a name is required")
	}
	return text
}

// count reads a number of replicas, 0 where it is absent.
func (f *fieldReader) count(name string, value json.RawMessage) int32 {
	var count int32
	switch {
	case isAbsent(value):
	case json.Unmarshal(value, &count) != nil:
		f.mistyped(name, value, "a whole number of at most 2147483647, such as 2")
	case count < 0:
		f.add(name, "%d is negative", count)
	}
	return count
}

// quantity reads a number or a string that is one; nil where it is absent.
func (f *fieldReader) quantity(name string, value json.RawMessage) *resource.Quantity {
	if isAbsent(value) {
		return nil
	}
	// The library spends hours on some of what it parses.
	if err := quantity.Check(strings.Trim(string(value), `"`)); err != nil && isNumberOrString(value) {
		f.add(name, "%s: %v", shown(value), err)
		return nil
	}
	var amount resource.Quantity
	switch {
	case !isNumberOrString(value) || amount.UnmarshalJSON(value) != nil:
		f.mistyped(name, value, `a quantity, such as 2, "500m" or "4Gi"`)
		return nil
	case amount.Sign() < 0:
		f.add(name, "%s is negative", shown(value))
		return nil
	}
	return &amount
}

func isNumberOrString(value json.RawMessage) bool {
	return value[0] == '"' || value[0] == '-' || value[0] >= '0' && value[0] <= '9'
}

// pods reads a list of the names of pods, each of which must say something.
func (f *fieldReader) pods(name string, value json.RawMessage) []string {
	if isAbsent(value) {
		return nil
	}
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		f.mistyped(name, value, "a list of the names of pods")
		return nil
	}
	pods := make([]string, 0, len(items))
	for i, item := range items {
		pods = append(pods, f.required(fmt.Sprintf("%s[%d]", name, i), item))
	}
	return pods
}
