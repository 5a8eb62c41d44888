// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Probe goes all the way that a job goes which is written in the version that
// is not stored: through the API server to defaulting, validation and
// conversion. Nothing is stored. It is nil when all of them answer.
func Probe(ctx context.Context, api client.Client, namespace string) error {
	job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"coordinator": map[string]any{
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "di-container", "image": "none"}}}},
	}}}}
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: v1alpha1.Version, Kind: "DIJob"})
	job.SetNamespace(namespace)
	job.SetGenerateName("probe-")
	if err := api.Create(ctx, job, client.DryRunAll); err != nil {
		return fmt.Errorf("a job that is created at %s without being stored: %w", v1alpha1.Version, err)
	}
	return nil
}
