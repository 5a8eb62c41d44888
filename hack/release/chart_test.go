// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestOnlyTheNamedValueOfTheChartChanges(t *testing.T) {
	t.Parallel()
	const values = "# repository: a\nimage:\n  # -- Where.\n  repository: a # b\n\n  tag: \"\"\nother:\n  repository: a\n"
	const want = "# repository: a\nimage:\n  # -- Where.\n  repository: ghcr.io/x/a # b\n\n  tag: \"\"\nother:\n  repository: a\n"
	got, err := replaceValue([]byte(values), "ghcr.io/x/a", "image", "repository")
	if err != nil || string(got) != want {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
}

func TestAValueThatIsNotThereOrNotPlainIsRefused(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"", "image: {}\n", "image:\n  repository: \"a\"\n", "image:\n  repository: [a]\n", "image: a\n"} {
		if _, err := replaceValue([]byte(values), "b", "image", "repository"); err == nil {
			t.Errorf("%q was changed, want an error", values)
		}
	}
}
