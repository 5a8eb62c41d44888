// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsontype compares JSON with Go types and reports each value that does not decode at its
// own path. It is pure.
package jsontype

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/internal/quantity"
)

const (
	// MaxFindings is how many findings of each kind are collected.
	MaxFindings = 1000
	// mostListBytes is the maximum memory of the items of one list after decoding. A container
	// without members takes three bytes of JSON, and 500 times as much memory.
	mostListBytes = 8 << 20
)

// Findings are the differences between a JSON value and a Go type.
type Findings struct {
	// Mistyped are values that do not fit the type.
	Mistyped field.ErrorList
	// Unknown are the paths of members for which the type has no field.
	Unknown []string
	// isUnread is set if the rest of the value is unknown.
	isUnread bool
}

// Beside returns the errors of rules about the rest of the value. It drops those that follow from a mistyped value.
func (f *Findings) Beside(errs field.ErrorList) field.ErrorList {
	if f.isUnread {
		return nil
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return slices.ContainsFunc(f.Mistyped, func(mistyped *field.Error) bool { return isWithin(err.Field, mistyped.Field) })
	})
}

// isWithin reports whether a path is that of a value, or of one below it.
func isWithin(path, value string) bool {
	below, isBelow := strings.CutPrefix(path, value)
	return isBelow && (below == "" || below[0] == '.' || below[0] == '[')
}

// Compare finds each difference between a JSON value and a Go type at its own path. A decoder stops
// at the first difference and reports only the Go field. Null is not a difference, because it
// decodes to nothing.
func Compare(raw []byte, goType reflect.Type, at *field.Path) Findings {
	found, _ := Fit(raw, goType, at)
	return found
}

// Fit finds the same, and returns the JSON with null in place of each mistyped value; nil if not all were found.
func Fit(raw []byte, goType reflect.Type, at *field.Path) (Findings, []byte) {
	c := comparison{fields: map[reflect.Type]map[string]reflect.Type{}}
	value, err := DecodeAny(raw)
	if err != nil {
		c.Mistyped = append(c.Mistyped, field.TypeInvalid(at, field.OmitValueType{}, "must be JSON: "+err.Error()))
		c.isUnread = true
		return c.Findings, nil
	}
	value = c.fitting(value, goType, at)
	slices.Sort(c.Unknown)
	slices.SortStableFunc(c.Mistyped, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	switch len(c.Mistyped) {
	case 0:
		return c.Findings, raw
	case MaxFindings:
		// Some values were not compared.
		c.isUnread = true
		return c.Findings, nil
	}
	// What was decoded can be encoded.
	rest, _ := json.Marshal(value)
	return c.Findings, rest
}

type comparison struct {
	Findings

	// isRefused is set if the value that was last compared does not fit, apart from the values in it.
	isRefused bool
	// fields caches the JSON members of each struct type.
	fields map[reflect.Type]map[string]reflect.Type
}

// fitting compares a value, and returns nil in place of one that does not fit.
func (c *comparison) fitting(value any, goType reflect.Type, at *field.Path) any {
	c.isRefused = false
	c.value(value, goType, at)
	if c.isRefused {
		c.isRefused = false
		return nil
	}
	return value
}

func (c *comparison) value(value any, goType reflect.Type, at *field.Path) {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	if value == nil || goType.Kind() == reflect.Interface || len(c.Mistyped) == MaxFindings {
		return
	}
	if decodesItself(goType) {
		c.decode(value, goType, at)
		return
	}
	switch goType.Kind() {
	case reflect.Struct:
		c.object(value, goType, at)
	case reflect.Map:
		c.mapping(value, goType, at)
	case reflect.Slice, reflect.Array:
		c.list(value, goType, at)
	default:
		c.scalar(value, goType, at)
	}
}

// decodesItself reports whether the type implements its own decoding.
func decodesItself(goType reflect.Type) bool {
	pointer := reflect.PointerTo(goType)
	return pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) || pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// decode tries the type's own decoding, unless that would be too expensive.
func (c *comparison) decode(value any, goType reflect.Type, at *field.Path) {
	if goType == reflect.TypeFor[resource.Quantity]() {
		if err := quantity.Check(scalarText(value)); err != nil {
			c.refuse(value, at, err.Error())
			return
		}
	}
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(raw, reflect.New(goType).Interface())
	}
	if err != nil {
		c.refuse(value, at, expected(goType, err))
	}
}

// scalarText returns the text of a string or a number, "" for any other value.
func scalarText(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	}
	return ""
}

// expected describes the values that a type with its own decoding accepts.
func expected(goType reflect.Type, err error) string {
	switch goType {
	case reflect.TypeFor[resource.Quantity]():
		return "must be a quantity, such as 2, 500m or 4Gi"
	case reflect.TypeFor[intstr.IntOrString]():
		return "must be an integer or a string"
	case reflect.TypeFor[metav1.Time]():
		return "must be a time, such as 2006-01-02T15:04:05Z"
	case reflect.TypeFor[metav1.MicroTime]():
		return "must be a time, such as 2006-01-02T15:04:05.000000Z"
	case reflect.TypeFor[metav1.Duration]():
		return "must be a duration, such as 1h30m"
	}
	return "must decode: " + err.Error()
}

func (c *comparison) object(value any, goType reflect.Type, at *field.Path) {
	members, ok := value.(map[string]any)
	if !ok {
		c.refuse(value, at, "must be an object")
		return
	}
	fields, known := c.fields[goType]
	if !known {
		fields = map[string]reflect.Type{}
		jsonFields(goType, fields)
		c.fields[goType] = fields
	}
	for _, key := range sortedKeys(members) {
		if fieldType, ok := fields[key]; ok {
			members[key] = c.fitting(members[key], fieldType, at.Child(key))
		} else if len(c.Unknown) < MaxFindings {
			c.Unknown = append(c.Unknown, at.Child(key).String())
		}
	}
}

// jsonFields collects the fields of a struct by their JSON names.
func jsonFields(goType reflect.Type, into map[string]reflect.Type) {
	for i := range goType.NumField() {
		structField := goType.Field(i)
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case name == "-" || !structField.IsExported():
		case structField.Anonymous && name == "":
			jsonFields(structField.Type, into)
		case name == "":
			into[structField.Name] = structField.Type
		default:
			into[name] = structField.Type
		}
	}
}

func (c *comparison) mapping(value any, goType reflect.Type, at *field.Path) {
	members, ok := value.(map[string]any)
	if !ok {
		c.refuse(value, at, "must be an object")
		return
	}
	for _, key := range sortedKeys(members) {
		members[key] = c.fitting(members[key], goType.Elem(), at.Key(key))
	}
}

// sortedKeys makes the order of findings deterministic.
func sortedKeys(members map[string]any) []string {
	return slices.Sorted(maps.Keys(members))
}

func (c *comparison) list(value any, goType reflect.Type, at *field.Path) {
	if goType.Elem().Kind() == reflect.Uint8 {
		if text, ok := value.(string); !ok || !isBase64(text) {
			c.refuse(value, at, "must be a string in base64")
		}
		return
	}
	items, ok := value.([]any)
	if !ok {
		c.refuse(value, at, "must be a list")
		return
	}
	if most := mostListBytes / max(1, int(goType.Elem().Size())); len(items) > most {
		c.Mistyped, c.isRefused = append(c.Mistyped, field.TooMany(at, len(items), most)), true
		return
	}
	for i, item := range items {
		items[i] = c.fitting(item, goType.Elem(), at.Index(i))
	}
}

func isBase64(text string) bool {
	_, err := base64.StdEncoding.DecodeString(text)
	return err == nil
}

func (c *comparison) scalar(value any, goType reflect.Type, at *field.Path) {
	number, isNumber := value.(json.Number)
	text, isText := value.(string)
	_, isBool := value.(bool)
	switch kind := goType.Kind(); {
	case kind == reflect.String && !isText:
		c.refuse(value, at, "must be a string")
	case kind == reflect.Bool && !isBool:
		c.refuse(value, at, "must be true or false")
	case reflect.Int <= kind && kind <= reflect.Int64:
		if message := integerFits(number.String(), goType.Bits()); !isNumber || message != "" {
			c.refuse(value, at, message+inSeconds(text, at))
		}
	case kind == reflect.Float32 || kind == reflect.Float64:
		if !isNumber {
			c.refuse(value, at, "must be a number")
		}
	}
}

// integerFits returns why a number is not an integer of this size, and "" if it is.
func integerFits(number string, bits int) string {
	if _, err := strconv.ParseInt(number, 10, bits); err == nil {
		return ""
	}
	if _, err := strconv.ParseInt(number, 10, 64); err == nil {
		most := int64(1)<<(bits-1) - 1
		return fmt.Sprintf("must be an integer from %d to %d", -most-1, most)
	}
	return "must be an integer"
}

// inSeconds returns what to write into a field of seconds in place of a duration such as 1h or a number
// in quotes; "" for other fields and texts.
func inSeconds(text string, at *field.Path) string {
	name := at.String()
	if !strings.Contains(name[strings.LastIndex(name, ".")+1:], "Seconds") {
		return ""
	}
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		return ", in seconds"
	}
	return fmt.Sprintf(", in seconds: %d", int64(duration.Seconds()))
}

func (c *comparison) refuse(value any, at *field.Path, message string) {
	c.isRefused = true
	if len(c.Mistyped) < MaxFindings {
		c.Mistyped = append(c.Mistyped, field.Invalid(at, shown(value), message))
	}
}

// shownLength is the maximum length of a value in an error message, in bytes.
const shownLength = 64

// shown returns a decoded value for an error message.
func shown(value any) any {
	if text, ok := value.(string); ok {
		return Shorten(text)
	}
	if raw, err := json.Marshal(value); err != nil || len(raw) > shownLength {
		return field.OmitValueType{}
	}
	return value
}

// Shorten truncates a text for an error message.
func Shorten(text string) string {
	if len(text) <= shownLength {
		return text
	}
	return strings.ToValidUTF8(text[:shownLength], "") + "..."
}

// Read decodes an object of another API and finds its differences from the type. The decoded object lacks mistyped
// values, so that rules about the others apply.
func Read[T any](raw []byte, at *field.Path) (*T, Findings) {
	decoded := new(T)
	if len(raw) == 0 {
		return decoded, Findings{}
	}
	found, rest := Fit(raw, reflect.TypeFor[T](), at)
	if found.isUnread {
		return decoded, found
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(rest, decoded); err != nil {
		decoded, found.isUnread = new(T), true
		if len(found.Mistyped) == 0 {
			// The comparison should have found it.
			found.Mistyped = field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must decode: "+err.Error())}
		}
	}
	return decoded, found
}
