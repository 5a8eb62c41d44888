// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
)

func TestThePinsAreFoundFromTheRootOfTheCheckoutAndFromTheirFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	source := filepath.Join(root, "hack", "cluster")
	if err := os.MkdirAll(filepath.Join(source, "binaries"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{root, source} {
		if got := findSource(dir); got != source {
			t.Errorf("from %s: got %s, want %s", dir, got, source)
		}
	}
}

func TestTheExitCodeTellsWhatKindOfFailureItWas(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for want, err := range map[int]error{
		exitOK: nil, exitFailed: broken, exitUsage: usageError{broken},
		exitUnsuitable: fmt.Errorf("wrapped: %w", machine.UnsuitableError{Reason: broken}),
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
	if got := exitCode(errForeign); got != exitUnsuitable {
		t.Errorf("a foreign cluster: got %d, want %d", got, exitUnsuitable)
	}
}
