// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// CreateFile creates the object of a YAML file.
func CreateFile(ctx context.Context, api client.Client, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &object.Object); err != nil {
		return fmt.Errorf("decoding %s: %w", path, err)
	}
	if err := api.Create(ctx, object); err != nil {
		return fmt.Errorf("creating %s of %s: %w", object.GetKind(), path, err)
	}
	return nil
}
