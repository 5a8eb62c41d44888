// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// measured returns observations of a job by the factor of its network at each span.
func measured(truth Throughput, factors map[int]float64) []Observation {
	var all []Observation
	add := func(nodes, replicas, span int, times float64) {
		across := truth.Across(times)
		for _, atomic := range []int{32, 64, 128} {
			at := Config{Nodes: nodes, Replicas: replicas, Atomic: atomic}
			all = append(all, Observation{Nodes: nodes, Replicas: replicas, Atomic: atomic, Span: span, Step: across.StepTime(at), Accumulate: across.accumulate(atomic)})
		}
	}
	add(1, 1, 0, 1)
	add(1, 4, 0, 1)
	for span, times := range factors {
		add(2, 8, span, times)
		add(4, 16, span, times)
	}
	return all
}

func TestAFitFindsHowMuchLongerTheNetworkTakesAcrossDomains(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 4))
		truth := Throughput{
			AlphaC: 0.02 + 0.1*random.Float64(), BetaC: 0.001 + 0.004*random.Float64(), AlphaN: 0.1 + 0.2*random.Float64(),
			BetaN: 0.005 * random.Float64(), AlphaR: 0.01 + 0.05*random.Float64(), BetaR: 0.002 * random.Float64(), Gamma: 1 + random.Float64(),
		}
		want := map[int]float64{1: 1, 2: 1.5 + random.Float64(), 4: 3 + 3*random.Float64()}
		_, got := FitAcross(measured(truth, want))
		for span := range got {
			if math.Abs(math.Log(math.Max(got[span], 1e-9)/math.Max(want[span], 1e-9))) > 0.1 {
				t.Errorf("seed %d: the network takes %v times as long by spans, want %v", seed, got, want)
			}
		}
	}
}

func TestAFitWithoutSpansIsThatOfOneNetwork(t *testing.T) {
	t.Parallel()
	truth := Throughput{AlphaC: 0.05, BetaC: 0.002, AlphaN: 0.2, BetaN: 0.001, AlphaR: 0.03, BetaR: 0.001, Gamma: 1.5}
	for name, tc := range map[string]struct {
		spans map[int]float64
		want  Crossings
	}{
		"no span is known":       {map[int]float64{0: 1}, Crossings{}},
		"one span is known":      {map[int]float64{2: 1}, Crossings{2: 1}},
		"the network is as fast": {map[int]float64{1: 1, 2: 1}, Crossings{1: 1, 2: 1}},
		"it is faster":           {map[int]float64{1: 1, 2: 0.5}, Crossings{1: 1, 2: 1}},
	} {
		_, got := FitAcross(measured(truth, tc.spans))
		for span := range got {
			got[span] = math.Round(got[span]*50) / 50
		}
		expect.Equal(t, name, tc.want, got)
	}
	observations := measured(truth, map[int]float64{0: 1})
	got, _ := FitAcross(observations)
	expect.Equal(t, "throughput", Fit(observations, nil), got)
}

func TestANetworkThatTakesNoTimeWithinADomainMayTakeSomeAcross(t *testing.T) {
	t.Parallel()
	truth := Throughput{AlphaC: 0.05, BetaC: 0.004, AlphaN: 1e-6, BetaN: 1e-8, AlphaR: 1e-6, BetaR: 1e-8, Gamma: 1}
	observations := measured(truth, map[int]float64{1: 1, 2: 1e6})
	fitted, crossings := FitAcross(observations)
	across := fitted.Across(crossings[2])
	for _, o := range observations {
		at := Config{Nodes: o.Nodes, Replicas: o.Replicas, Atomic: o.Atomic}
		predicted := fitted.StepTime(at)
		if o.Span == 2 {
			predicted = across.StepTime(at)
		}
		if math.Abs(math.Log(predicted/o.Step)) > 0.05 {
			t.Errorf("a step of span %d takes %g s, want %g: %+v", o.Span, predicted, o.Step, o)
		}
	}
}
