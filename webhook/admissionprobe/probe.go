// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionprobe

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Probe dry-run-creates a job in v1alpha1, which passes the API server's defaulting, validation and
// conversion. It returns nil if all of them answer. If v1alpha1 is no longer served, it does the
// same in v2alpha1.
func Probe(ctx context.Context, api client.Client, namespace string) error {
	err := probe(ctx, api, namespace, v1alpha1.Version, map[string]any{"coordinator": map[string]any{"template": probeTemplate()}})
	if isNotServed(err) {
		if ProbeV2(ctx, api, namespace) == nil {
			return nil
		}
	}
	return err
}

// ProbeV2 dry-run-creates a job in v2alpha1.
func ProbeV2(ctx context.Context, api client.Client, namespace string) error {
	return probe(ctx, api, namespace, v2alpha1.GroupVersion.Version, map[string]any{
		"tasks": []any{map[string]any{"type": "none", "name": "probe", "template": probeTemplate()}},
	})
}

// isNotServed reports whether the API server does not serve the version. A missing
// namespace is another error.
func isNotServed(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func probeTemplate() map[string]any {
	return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "di-container", "image": "none"}}}}
}

func probe(ctx context.Context, api client.Client, namespace, version string, spec map[string]any) error {
	job := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: version, Kind: "DIJob"})
	job.SetNamespace(namespace)
	job.SetGenerateName("probe-")
	if err := api.Create(ctx, job, client.DryRunAll, client.FieldOwner(names.NoPodCheck)); err != nil {
		return fmt.Errorf("a job that is created at %s without being stored: %w", version, err)
	}
	return nil
}
