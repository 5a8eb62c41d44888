// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expect has the comparisons that unit tests make most often.
package expect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal fails the test if what was got differs from what is wanted, and continues it.
func Equal[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// MustEqual fails the test if what was got differs from what is wanted, and ends it.
func MustEqual[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}
