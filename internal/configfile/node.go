// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/config/v1alpha1"
)

// kind is the kind of a field's value.
type kind string

const (
	object   kind = "an object"
	list     kind = "a list"
	text     kind = "a string"
	boolean  kind = "true or false"
	integer  kind = "a whole number"
	number   kind = "a number"
	duration kind = "a duration, such as 90s or 1m30s"
	quantity kind = "a quantity, such as 64Gi"
)

// node describes a field: the kind of its value, and the rule that the value keeps.
type node struct {
	kind kind
	// fields are those of an object, and item is what a list has.
	fields map[string]*node
	item   *node
	rule   rule
	// goName and goType are those of the field and its struct, whose comments describe it.
	goName, goType string
}

// describe returns the description of the file. The types of the API package have the fields.
func describe() *node {
	return nodeOf(reflect.TypeFor[v1alpha1.Configuration](), "")
}

func nodeOf(of reflect.Type, path string) *node {
	found := &node{kind: kindOf(of), rule: rules()[path], goType: of.Name()}
	if found.kind == object {
		found.fields = map[string]*node{}
		addFields(found.fields, of, path)
	}
	if found.kind == list {
		found.item = nodeOf(of.Elem(), path+"[]")
	}
	return found
}

// addFields adds the fields of a struct, also those of embedded structs.
func addFields(into map[string]*node, of reflect.Type, path string) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			addFields(into, field.Type, path)
			continue
		}
		into[name] = nodeOf(field.Type, strings.TrimPrefix(path+"."+name, "."))
		into[name].goName = field.Name
	}
}

// kindOf returns the kind of a type; a test finds a type that has none.
func kindOf(of reflect.Type) kind {
	switch of {
	case reflect.TypeFor[metav1.Duration]():
		return duration
	case reflect.TypeFor[resource.Quantity]():
		return quantity
	}
	return map[reflect.Kind]kind{
		reflect.Struct: object, reflect.Slice: list, reflect.String: text, reflect.Bool: boolean, reflect.Int32: integer, reflect.Float64: number,
	}[of.Kind()]
}
