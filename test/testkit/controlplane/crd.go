// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CRD reads a CustomResourceDefinition.
func CRD(ctx context.Context, api client.Client, name string) (*unstructured.Unstructured, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := api.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return nil, fmt.Errorf("reading CRD %s: %w", name, err)
	}
	return crd, nil
}

// EditCRD changes a CustomResourceDefinition, and retries on conflicts.
func EditCRD(ctx context.Context, api client.Client, name string, edit func(map[string]any) error) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd, err := CRD(ctx, api, name)
		if err != nil {
			return err
		}
		if err := edit(crd.Object); err != nil {
			return fmt.Errorf("editing CRD %s: %w", name, err)
		}
		return api.Update(ctx, crd)
	})
}
