// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crdschema

import "testing"

// BenchmarkSchema reads and compiles the schema that the CRD publishes, as each start of the
// program does.
func BenchmarkSchema(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(); err != nil {
			b.Fatal(err)
		}
	}
}
