// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain makes the garbage collector run less often: a long run creates many random objects
// beside a small heap.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1000)
	os.Exit(m.Run())
}
