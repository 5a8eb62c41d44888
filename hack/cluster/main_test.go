// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
)

func TestTheExitCodeNamesTheKindOfFailure(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for want, err := range map[int]error{
		exitOK: nil, exitFailed: broken, exitUsage: fmt.Errorf("%w: x", errUsage),
		exitUnsuitable: fmt.Errorf("wrapped: %w", machine.UnsuitableError{Reason: broken}),
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
	if got := exitCode(errExternal); got != exitUnsuitable {
		t.Errorf("another cluster: got %d, want %d", got, exitUnsuitable)
	}
}

func TestAWrongCommandLineIsRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "nonsense", "up now", "metrics now", "kueue now", "keda now", "prometheus now", "node", "node stop", "node turn local", "load-image", "program"} {
		var out strings.Builder
		if err := execute(t.Context(), strings.Fields(line), &out); !errors.Is(err, errUsage) {
			t.Errorf("%q: got %v, want the usage", line, err)
		}
	}
}

func TestAnotherClusterOnlyHasAnEnvironment(t *testing.T) {
	t.Parallel()
	if got, err := external(t.Context(), nil, "env", "/elsewhere"); err != nil || got != "export KUBECONFIG=/elsewhere\n" {
		t.Errorf("got %q (%v)", got, err)
	}
	for _, command := range []string{"metrics", "kueue", "keda", "prometheus", "load-image", "node stop", "node start"} {
		if _, err := external(t.Context(), nil, command, "/elsewhere"); !errors.Is(err, errExternal) {
			t.Errorf("%s: got %v", command, err)
		}
	}
}
