// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expect has the comparisons that unit tests make most often.
package expect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal fails the test if what was got differs from what is wanted, and continues it.
func Equal[T any](tb testing.TB, what string, want, got T) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// MustEqual fails the test if what was got differs from what is wanted, and ends it.
func MustEqual[T any](tb testing.TB, what string, want, got T) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}
