// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestTheChartNamesItsImageOnceInEachFile(t *testing.T) {
	t.Parallel()
	const values = "image:\n  # -- Where.\n  repository: di-orchestrator\n  tag: \"\"\n"
	const want = "image:\n  # -- Where.\n  repository: ghcr.io/x/di-orchestrator\n  tag: \"\"\n"
	got, err := withRepository("values.yaml", []byte(values), "ghcr.io/x/di-orchestrator")
	if err != nil || string(got) != want {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
	for _, values := range []string{"", "image:\n  repository: a\n", values + values} {
		if _, err := withRepository("values.yaml", []byte(values), "b"); err == nil {
			t.Errorf("%q was changed, want an error", values)
		}
	}
}
