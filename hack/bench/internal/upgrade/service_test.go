// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"slices"
	"testing"
)

func TestConnectionsLeadToWhatIsReadyInTurn(t *testing.T) {
	t.Parallel()
	var e endpoints
	if got := e.choose("caller"); got != "" {
		t.Errorf("with nothing there, a connection leads to %q", got)
	}
	e.set("a", true)
	e.set("b", false)
	e.set("c", true)
	chosen := []string{e.choose("caller"), e.choose("caller"), e.choose("caller")}
	slices.Sort(chosen)
	if chosen = slices.Compact(chosen); !slices.Equal(chosen, []string{"a", "c"}) {
		t.Errorf("connections lead to %v, want a and c", chosen)
	}
	e.set("a", false)
	e.remove("c")
	if got := e.choose("caller"); got != "" {
		t.Errorf("with nothing ready, a connection leads to %q", got)
	}
}

func TestACallerStaysWhereItIsWhileThatIsReady(t *testing.T) {
	t.Parallel()
	e := endpoints{affinity: true}
	e.set("a", true)
	e.set("b", true)
	first := e.choose("caller")
	for range 5 {
		e.choose("another")
		if got := e.choose("caller"); got != first {
			t.Errorf("the caller is led to %q, was at %q", got, first)
		}
	}
	e.set(first, false)
	second := e.choose("caller")
	if second == first || second == "" {
		t.Errorf("the caller is led to %q, which is not ready", second)
	}
	e.set(first, true)
	if got := e.choose("caller"); got != second {
		t.Errorf("the caller is led back to %q, was at %q", got, second)
	}
}

func TestBundlesAreFoundWhereverTheyAre(t *testing.T) {
	t.Parallel()
	found := bundlesIn(map[string]any{
		"metadata": map[string]any{"managedFields": []any{map[string]any{"caBundle": "eA=="}}},
		"webhooks": []any{map[string]any{"clientConfig": map[string]any{"caBundle": "YQ=="}}, map[string]any{"clientConfig": map[string]any{}}},
	})
	if len(found) != 1 || string(found[0]) != "a" {
		t.Errorf("found %q, want a", found)
	}
}
