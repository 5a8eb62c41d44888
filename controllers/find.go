// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find gets an object. It returns a nil pointer if there is none.
func Find[T client.Object](ctx context.Context, reader client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	err := reader.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("getting %T %s: %w", into, key, err)
	}
	return into, nil
}

// DeepCopy returns a copy of an object. It returns an error for a type whose copies are no objects.
func DeepCopy(object client.Object) (client.Object, error) {
	copied, isObject := object.DeepCopyObject().(client.Object)
	if !isObject {
		return nil, fmt.Errorf("a copy of %T is no object", object)
	}
	return copied, nil
}
