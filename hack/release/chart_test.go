// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestTheChartNamesItsImagesOnceInEachFile(t *testing.T) {
	t.Parallel()
	const values = "image:\n  # -- Where.\n  repository: di-orchestrator\n  tag: \"\"\nweb:\n  image:\n    repository: kubectl-di\n"
	const want = "image:\n  # -- Where.\n  repository: ghcr.io/x/di-orchestrator\n  tag: \"\"\nweb:\n  image:\n    repository: ghcr.io/x/kubectl-di\n"
	got, err := withRegistry("values.yaml", []byte(values), "ghcr.io/x")
	if err != nil || string(got) != want {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
	for _, values := range []string{"", "image:\n  repository: a\n", "image:\n  repository: di-orchestrator\n", values + values} {
		if _, err := withRegistry("values.yaml", []byte(values), "b"); err == nil {
			t.Errorf("%q was changed, want an error", values)
		}
	}
}
