// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WithoutManagers returns an object's managedFields without the entries of an API
// version, and whether there were any. Where nothing else is left it returns the
// one empty entry by which the API server forgets them all: to it an empty list
// is one that was not given.
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
