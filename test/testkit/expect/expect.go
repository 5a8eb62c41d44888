// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expect contains the comparisons that unit tests make most often.
package expect

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal reports an error if got differs from want. The test continues.
func Equal[T any](tb testing.TB, what string, want, got T) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// MustEqual reports an error if got differs from want, and ends the test.
func MustEqual[T any](tb testing.TB, what string, want, got T) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// Golden compares a text with the file that has it, which it writes first if update is set.
func Golden(tb testing.TB, path, got string, update bool) {
	tb.Helper()
	if update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
