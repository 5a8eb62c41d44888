// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/standin"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// complete returns an aggregator whose two parts are connected.
func completeAggregator(strict bool) *aggregator {
	a := &aggregator{
		following: &following{strict: strict},
		system:    System{Log: slog.New(slog.DiscardHandler)},
		dialer:    peer.NewDialer(standin.NewNetwork().Host("aggregator").Dial),
		parts:     map[string]peer.Identity{},
	}
	a.joined("d.ns:2", peer.Identity{Rank: 1, WorldSize: 2})
	a.joined("d.ns:1", peer.Identity{Rank: 0, WorldSize: 2})
	a.assemble([]string{"d.ns:2", "d.ns:1"})
	return a
}

func TestAStrictAggregatorDiesWhenItsListChanges(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		list             []string
		dies, stillWhole bool
	}{
		"the same list":         {[]string{"d.ns:1", "d.ns:2"}, false, true},
		"the same, other order": {[]string{"d.ns:2", "d.ns:1"}, false, true},
		"a part less":           {[]string{"d.ns:1"}, true, false},
		"a part more":           {[]string{"d.ns:1", "d.ns:2", "d.ns:3"}, true, false},
		"another part":          {[]string{"d.ns:1", "e.ns:1"}, true, false},
		"nothing":               {nil, true, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := completeAggregator(true).checkList(tc.list); (err != nil) != tc.dies {
				t.Errorf("strict: got %v, want an error to be %v", err, tc.dies)
			}
			forgiving := completeAggregator(false)
			if err := forgiving.checkList(tc.list); err != nil {
				t.Errorf("forgiving: %v", err)
			}
			if _, err := forgiving.complete(); (err == nil) != tc.stillWhole {
				t.Errorf("forgiving: got %v, want it whole to be %v", err, tc.stillWhole)
			}
		})
	}
}

func TestAnAggregatorIsReadyWhenEachRankIsConnected(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		second peer.Identity
		ready  bool
	}{
		"both ranks":      {peer.Identity{Rank: 1, WorldSize: 2}, true},
		"one rank twice":  {peer.Identity{Rank: 0, WorldSize: 2}, false},
		"another world":   {peer.Identity{Rank: 1, WorldSize: 3}, false},
		"a rank too high": {peer.Identity{Rank: 2, WorldSize: 2}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := completeAggregator(true)
			a.ensemble, a.parts = nil, map[string]peer.Identity{}
			a.joined("d.ns:1", peer.Identity{Rank: 0, WorldSize: 2})
			a.assemble([]string{"d.ns:1"})
			if _, err := a.Step(t.Context(), train.StepRequest{State: policy.NewState(1)}); !errors.Is(err, train.ErrNotReady) {
				t.Errorf("with one part: got %v, want %v", err, train.ErrNotReady)
			}
			a.joined("d.ns:2", tc.second)
			a.assemble([]string{"d.ns:1", "d.ns:2"})
			if _, err := a.complete(); (err == nil) != tc.ready {
				t.Errorf("got %v, want ready to be %v", err, tc.ready)
			}
		})
	}
}

// drifting is a part that makes another step than the others.
type drifting struct{ train.Local }

func (d *drifting) Step(ctx context.Context, r train.StepRequest) (policy.State, error) {
	next, err := d.Local.Step(ctx, r)
	next.Weights[0] += 1e-9
	return next, err
}

func TestPartsThatDivergeAreFoundOutThroughTheNetwork(t *testing.T) {
	t.Parallel()
	network := standin.NewNetwork()
	_, crew := newCrew(t.Context())
	var e train.Ensemble
	dialer := peer.NewDialer(network.Host("aggregator").Dial)
	for name, learner := range map[string]train.Learner{"sound": &train.Local{}, "drifting": &drifting{}} {
		mux := peer.NewMux(identify("learner", name))
		mux.ServeLearner(learner)
		if err := crew.serve(System{Listen: network.Host(name).Listen}, 1, mux); err != nil {
			t.Fatal(err)
		}
		e = append(e, train.Member{Name: name, Learner: dialer.Client(name + ":1")})
	}
	a := completeAggregator(true)
	a.ensemble = e
	aggregated := peer.NewMux(a.identity)
	aggregated.ServeLearner(a)
	if err := crew.serve(System{Listen: network.Host("aggregator").Listen}, 1, aggregated); err != nil {
		t.Fatal(err)
	}
	client := dialer.Client("aggregator:1")
	if _, err := client.Step(t.Context(), train.StepRequest{State: policy.NewState(1)}); !errors.Is(err, train.ErrDiverged) {
		t.Errorf("got %v, want %v", err, train.ErrDiverged)
	}
	if err := crew.stop(nil); err != nil {
		t.Error(err)
	}
}
