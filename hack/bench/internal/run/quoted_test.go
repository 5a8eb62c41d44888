// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import "testing"

func TestAShellReadsARecordedCommandAsItWasCalled(t *testing.T) {
	t.Parallel()
	for argument, want := range map[string]string{"-only": "-only", "": "''", "a b": "'a b'", "it's": `'it'\''s'`} {
		if got := quoted(argument); got != want {
			t.Errorf("%q is recorded as %s, want %s", argument, got, want)
		}
	}
}
