// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkTopology returns the labels that are of two levels. The narrower level would divide nothing.
func checkTopology(labels []string) field.ErrorList {
	path := field.NewPath("operator", "allocator", "topology")
	var found field.ErrorList
	for i := range labels {
		if slices.Contains(labels[:i], labels[i]) {
			found = append(found, field.Invalid(path.Index(i), labels[i], "must be the label of one level only"))
		}
	}
	return found
}
