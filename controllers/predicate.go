// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// ChangesOf returns a predicate for objects with relevant fields. matters returns these fields; nil for an
// irrelevant object. The predicate passes creations and deletions of relevant objects, and updates of
// relevant fields.
func ChangesOf(matters func(client.Object) any) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(created event.CreateEvent) bool { return matters(created.Object) != nil },
		DeleteFunc: func(deleted event.DeleteEvent) bool { return matters(deleted.Object) != nil },
		UpdateFunc: func(update event.UpdateEvent) bool {
			return !reflect.DeepEqual(matters(update.ObjectOld), matters(update.ObjectNew))
		},
	}
}
