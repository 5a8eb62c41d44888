// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/rollout"
)

func play(t *testing.T, u rollout.Unit) rollout.Result {
	t.Helper()
	result, err := rollout.Play(t.Context(), u, policy.NewWeights(1))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestAUnitAlwaysGivesTheSameEpisodes(t *testing.T) {
	t.Parallel()
	u := rollout.Unit{Seed: 1, Round: 2, Index: 3, Kind: rollout.Collect, Episodes: 4}
	if first, second := play(t, u), play(t, u); !reflect.DeepEqual(first, second) {
		t.Errorf("got %v, then %v", first.Returns, second.Returns)
	}
}

func TestUnitsThatDifferGiveDifferentEpisodes(t *testing.T) {
	t.Parallel()
	base := rollout.Unit{Seed: 1, Round: 2, Index: 3, Kind: rollout.Collect, Episodes: 8}
	tests := map[string]func(*rollout.Unit){
		"seed":  func(u *rollout.Unit) { u.Seed++ },
		"round": func(u *rollout.Unit) { u.Round++ },
		"index": func(u *rollout.Unit) { u.Index++ },
		"kind":  func(u *rollout.Unit) { u.Kind = rollout.Evaluate },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := base
			change(&u)
			if reflect.DeepEqual(play(t, base).Returns, play(t, u).Returns) {
				t.Error("the returns are the same")
			}
		})
	}
}

func TestOnlyCollectedEpisodesAreKept(t *testing.T) {
	t.Parallel()
	for kind, want := range map[rollout.Kind]int{rollout.Collect: 2, rollout.Evaluate: 0} {
		u := rollout.Unit{Seed: 1, Kind: kind, Episodes: 2}
		result := play(t, u)
		if len(result.Episodes) != want || len(result.Returns) != 2 {
			t.Errorf("%s: got %d episodes and %d returns, want %d and 2", kind, len(result.Episodes), len(result.Returns), want)
		}
		if err := result.Check(u); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestWrongWorkIsRefused(t *testing.T) {
	t.Parallel()
	good := rollout.Unit{Seed: 1, Kind: rollout.Collect, Episodes: 2}
	tests := map[string]struct {
		unit    rollout.Unit
		weights policy.Weights
	}{
		"unknown kind":      {rollout.Unit{Kind: "dance", Episodes: 1}, policy.NewWeights(1)},
		"no episodes":       {rollout.Unit{Kind: rollout.Collect}, policy.NewWeights(1)},
		"too many episodes": {rollout.Unit{Kind: rollout.Collect, Episodes: rollout.MaxEpisodes + 1}, policy.NewWeights(1)},
		"too few weights":   {good, policy.NewWeights(1)[1:]},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := rollout.Play(t.Context(), tc.unit, tc.weights); err == nil {
				t.Error("want an error")
			}
		})
	}
}

func TestPlayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u := rollout.Unit{Kind: rollout.Collect, Episodes: 1}
	if _, err := rollout.Play(ctx, u, policy.NewWeights(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
