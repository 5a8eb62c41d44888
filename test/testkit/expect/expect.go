// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expect contains the comparisons that unit tests make most often.
package expect

import (
	"os"

	"github.com/google/go-cmp/cmp"
)

// Test is the part of testing.TB that a comparison needs. A test that plays many worlds has its own, which
// shortens the sequence that fails.
type Test interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// NoError ends the test if an operation that it builds on has failed.
func NoError(tb Test, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Equal reports an error if got differs from want. The test continues.
func Equal[T any](tb Test, what string, want, got T) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// MustEqual reports an error if got differs from want, and ends the test.
func MustEqual[T any](tb Test, what string, want, got T) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// Golden compares a text with the file that has it, which it writes first if update is set.
func Golden(tb Test, path, got string, update bool) {
	tb.Helper()
	if update {
		NoError(tb, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	NoError(tb, err)
	Equal(tb, path, string(want), got)
}
