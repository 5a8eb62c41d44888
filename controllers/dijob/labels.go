// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/internal/names"
)

// restoreLabels puts back the labels by which an object of the job is selected, as they were sent. A pod with
// another shard is in no cache, and one with another job in no Service. It returns a ChangedError if
// admission changes them again.
func (r *Reconciler) restoreLabels(ctx context.Context, stored client.Object, sent map[string]string) error {
	if len(changedLabels(stored, sent)) == 0 {
		return nil
	}
	before, isObject := stored.DeepCopyObject().(client.Object)
	if !isObject {
		return fmt.Errorf("a copy of %T is no object", stored)
	}
	labels := maps.Clone(stored.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	for _, key := range changedLabels(stored, sent) {
		labels[key] = sent[key]
	}
	stored.SetLabels(labels)
	if err := client.IgnoreNotFound(r.client.Patch(ctx, stored, client.MergeFrom(before), controllers.FieldOwner)); err != nil {
		return fmt.Errorf("putting back the labels of %s %s/%s: %w", typeOf(stored), stored.GetNamespace(), stored.GetName(), err)
	}
	if again := changedLabels(stored, sent); len(again) > 0 {
		return &refusal.ChangedError{What: "label " + strings.Join(again, ", label ")}
	}
	return nil
}

// changedLabels returns the selecting labels that were sent and are not stored.
func changedLabels(stored client.Object, sent map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(sent)), func(key string) bool {
		value, has := stored.GetLabels()[key]
		return !names.IsSelecting(key) || has && value == sent[key]
	})
}
