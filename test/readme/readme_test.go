// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build readme

package readme

import (
	"os"
	"testing"

	"opendilab.org/di-orchestrator/internal/testkit"
)

func TestWhatTheReadmeSaysWorksInAFreshClone(t *testing.T) {
	w := &Walk{Repository: testkit.Root(), Page: "README.md", Name: "readme", Folder: t.TempDir(), Output: os.Stdout}
	if err := w.Do(t.Context()); err != nil {
		t.Fatalf("%v\nIf the local cluster is up: make demo-down takes it down", err)
	}
}
