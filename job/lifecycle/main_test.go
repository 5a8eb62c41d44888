// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the heap grow: random worlds live for milliseconds, and a quarter of their time went to collecting them.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
