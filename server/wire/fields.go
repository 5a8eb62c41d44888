// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/internal/quantity"
	"opendilab.org/di-orchestrator/server/failure"
)

const (
	// maxExcerpt bounds the bytes of a wrong value in a message.
	maxExcerpt = 64
	// maxErrors bounds the wrong fields in a message, so that the answer is not many times larger than the
	// body.
	maxErrors = 8
)

// fieldReader parses the fields of a body. It collects the errors of all fields, each with the field, its
// value and the valid values. Null counts as absent.
type fieldReader struct {
	errors []string
	// more counts the errors beyond maxErrors.
	more int
}

// err returns the failure with all errors; nil if there are none.
func (f *fieldReader) err() error {
	if len(f.errors) == 0 {
		return nil
	}
	message := strings.Join(f.errors, "; ")
	if f.more > 0 {
		message += fmt.Sprintf("; and %d more", f.more)
	}
	return failure.New(failure.Invalid, "%s", message)
}

func (f *fieldReader) add(name, format string, arguments ...any) {
	if len(f.errors) == maxErrors {
		f.more++
		return
	}
	f.errors = append(f.errors, name+": "+fmt.Sprintf(format, arguments...))
}

// mistyped adds the error of a value of a wrong type.
func (f *fieldReader) mistyped(name string, value json.RawMessage, right string) {
	f.add(name, "%s is not %s", excerpt(value), right)
}

func excerpt(value json.RawMessage) string {
	if len(value) <= maxExcerpt {
		return string(value)
	}
	return strings.ToValidUTF8(string(value[:maxExcerpt]), "") + "..."
}

func isAbsent(value json.RawMessage) bool {
	return len(value) == 0 || bytes.Equal(value, []byte("null"))
}

// object decodes an object into a struct of raw fields. Unknown keys are ignored.
func (f *fieldReader) object(name string, value json.RawMessage, into any) {
	if !isAbsent(value) && (value[0] != '{' || json.Unmarshal(value, into) != nil) {
		f.mistyped(name, value, "an object")
	}
}

// required parses a string that must not be empty.
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

// count parses a number of replicas; 0 if it is absent.
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

// quantity parses a quantity, given as a number or a string; nil if it is absent.
func (f *fieldReader) quantity(name string, value json.RawMessage) *resource.Quantity {
	if isAbsent(value) {
		return nil
	}
	// Kubernetes' parser takes hours for some inputs.
	if err := quantity.Check(strings.Trim(string(value), `"`)); err != nil && isNumberOrString(value) {
		f.add(name, "%s: %v", excerpt(value), err)
		return nil
	}
	var amount resource.Quantity
	switch {
	case !isNumberOrString(value) || amount.UnmarshalJSON(value) != nil:
		f.mistyped(name, value, `a quantity, such as 2, "500m" or "4Gi"`)
		return nil
	case amount.Sign() < 0:
		f.add(name, "%s is negative", excerpt(value))
		return nil
	}
	return &amount
}

func isNumberOrString(value json.RawMessage) bool {
	return value[0] == '"' || value[0] == '-' || value[0] >= '0' && value[0] <= '9'
}

// pods parses a list of pod names. No name may be empty.
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
