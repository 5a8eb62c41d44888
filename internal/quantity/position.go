// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podTemplate and volume are the positions of the quantities in those types. An argument such as
// 1e999999 has no such position, and is the user's own.
var (
	podTemplate = positionOf(reflect.TypeFor[corev1.PodTemplateSpec](), nil)
	volume      = positionOf(reflect.TypeFor[corev1.Volume](), nil)
)

// position is a position in a JSON document that is a quantity or leads to quantities.
type position struct {
	// quantity is set if the value itself is a quantity.
	quantity bool
	// members are the members of an object that lead to quantities.
	members map[string]*position
	// every is the position of each item of a list, or of each member of a map.
	every *position
}

// positionOf returns the position of the quantities of a type, nil if it has none. The types above
// are those that contain it: the search does not follow a type that contains itself.
func positionOf(of reflect.Type, above []reflect.Type) *position {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of == reflect.TypeFor[resource.Quantity]() {
		return &position{quantity: true}
	}
	for _, outer := range above {
		if outer == of {
			return nil
		}
	}
	above = append(above, of)
	switch of.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		if every := positionOf(of.Elem(), above); every != nil {
			return &position{every: every}
		}
	case reflect.Struct:
		members := map[string]*position{}
		membersOf(of, above, members)
		if len(members) > 0 {
			return &position{members: members}
		}
	default:
		// A scalar of another type is no quantity.
	}
	return nil
}

// membersOf adds the members of a struct that lead to quantities.
func membersOf(of reflect.Type, above []reflect.Type, into map[string]*position) {
	for i := range of.NumField() {
		structField := of.Field(i)
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case name == "-" || !structField.IsExported():
		case name == "" && structField.Anonymous && structField.Type.Kind() == reflect.Struct:
			membersOf(structField.Type, above, into)
		default:
			if below := positionOf(structField.Type, above); below != nil {
				into[name] = below
			}
		}
	}
}

// member returns the position of a member of an object, nil if it leads to no quantity. The
// comparison ignores case, because some decoders do.
func (p *position) member(name string) *position {
	if p.every != nil {
		return p.every
	}
	if exact, ok := p.members[name]; ok {
		return exact
	}
	for known, below := range p.members {
		if strings.EqualFold(known, name) {
			return below
		}
	}
	return nil
}
