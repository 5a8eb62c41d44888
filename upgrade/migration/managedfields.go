// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WithoutManagers returns an object's managedFields without the entries of an API version, and
// whether there were any. If no entry is left it returns one empty entry, which makes the API
// server remove all of them: it ignores an empty list.
func WithoutManagers(entries []metav1.ManagedFieldsEntry, apiVersion string) ([]metav1.ManagedFieldsEntry, bool) {
	kept := slices.DeleteFunc(slices.Clone(entries), func(entry metav1.ManagedFieldsEntry) bool { return entry.APIVersion == apiVersion })
	if len(kept) == len(entries) {
		return entries, false
	}
	if len(kept) == 0 {
		kept = []metav1.ManagedFieldsEntry{{}}
	}
	return kept, true
}
