// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage less often: the random objects of a long run leave
// much of it beside a small heap.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1000)
	os.Exit(m.Run())
}
