// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// prepared begins the progress of a takeover until its first step.
const prepared = "Prepared: "

// withhold does not serve the versions that Prepare adds to a definition. An API server that serves a
// version before it reaches the webhooks that convert to it answers each read of it with an error.
func withhold(merged, stored *apiextensionsv1.CustomResourceDefinition) {
	for i := range merged.Spec.Versions {
		version := &merged.Spec.Versions[i]
		as := versionOf(stored, version.Name)
		version.Served = as != nil && as.Served
	}
}

// AwaitsWebhooks reports whether a definition has a version that Prepare added and Serve has yet to
// serve.
func AwaitsWebhooks(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return strings.HasPrefix(definition.Annotations[AnnotationTakeover], prepared) && isServedByWebhook(definition.Spec.Conversion) &&
		slices.ContainsFunc(definition.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool { return !version.Served })
}

// Serve makes the API server serve the versions that Prepare added. The caller knows that the
// webhooks answer. Several processes may call it concurrently: one write succeeds, and the other
// conflicts.
func Serve(ctx context.Context, api client.Writer, definition *apiextensionsv1.CustomResourceDefinition) error {
	served := definition.DeepCopy()
	for i := range served.Spec.Versions {
		served.Spec.Versions[i].Served = true
	}
	annotate(served, map[string]string{AnnotationTakeover: prepared + "both versions are served, what is stored stays; then the elected operator goes on"})
	if err := api.Update(ctx, served, preparer); err != nil {
		return fmt.Errorf("serving the added version of customresourcedefinition %s: %w", definition.Name, err)
	}
	return nil
}
