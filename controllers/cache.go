// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheOptions returns how a manager's cache keeps objects. Pods of the two
// generations of jobs bear different labels, which no one selector matches, so
// all pods are watched; of those that are no job's hardly anything is kept.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:     {Transform: trimForeign},
			&corev1.Service{}: {Transform: trimForeign},
		},
	}
}

// trimForeign strips an object, and empties one that no job owns.
func trimForeign(in any) (any, error) {
	object, ok := in.(client.Object)
	if !ok {
		return in, nil
	}
	if object.GetManagedFields() != nil {
		object.SetManagedFields(nil)
	}
	if len(controllerUID(object)) > 0 {
		return object, nil
	}
	meta := metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
	switch object.(type) {
	case *corev1.Pod:
		return &corev1.Pod{ObjectMeta: meta}, nil
	case *corev1.Service:
		return &corev1.Service{ObjectMeta: meta}, nil
	}
	return object, nil
}
