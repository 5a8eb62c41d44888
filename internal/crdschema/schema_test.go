// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crdschema

import "testing"

// BenchmarkSchema reads and compiles the schema that the CRD publishes, once
// for each start.
func BenchmarkSchema(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(); err != nil {
			b.Fatal(err)
		}
	}
}
