// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"math"
	"slices"
	"testing"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/cartpole"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
)

// weights returns weights of which none is zero.
func weights() policy.Weights {
	w := policy.NewWeights(7)
	for i := range w {
		w[i] += 0.01 * float64(i%7+1)
	}
	return w
}

func TestTheGradientAgreesWithFiniteDifferences(t *testing.T) {
	t.Parallel()
	o := cartpole.Observation{0.3, -0.2, 0.05, 0.4}
	for _, action := range []cartpole.Action{cartpole.PushLeft, cartpole.PushRight} {
		logProbability := func(w policy.Weights) float64 {
			p := w.PushRight(o)
			if action == cartpole.PushLeft {
				p = 1 - p
			}
			return math.Log(p)
		}
		episode := policy.Episode{Observations: []cartpole.Observation{o}, Actions: []cartpole.Action{action}}
		// The return of one step is 1, so that the advantage is 1 too.
		g := policy.NewGradient(weights(), policy.Baseline{Mean: 0, Deviation: 1}, []policy.Episode{episode})
		for i := range g.Sum {
			const h = 1e-6
			up, down := weights(), weights()
			up[i] += h
			down[i] -= h
			want := (logProbability(up) - logProbability(down)) / (2 * h)
			if math.Abs(g.Sum[i]-want) > 1e-7 {
				t.Errorf("action %d, weight %d: got %v, want %v", action, i, g.Sum[i], want)
			}
		}
	}
}

func TestTheBaselineIsMeanAndDeviationOfAllReturnsToGo(t *testing.T) {
	t.Parallel()
	got := policy.NewBaseline([]int{2, 1}) // returns to go: 1.99, 1; 1
	mean := (1.99 + 1 + 1) / 3
	deviation := math.Sqrt(((1.99-mean)*(1.99-mean) + 2*(1-mean)*(1-mean)) / 3)
	if math.Abs(got.Mean-mean) > 1e-9 || math.Abs(got.Deviation-deviation) > 1e-6 {
		t.Errorf("got %+v, want mean %v, deviation %v", got, mean, deviation)
	}
}

func TestTheAverageIsOverSteps(t *testing.T) {
	t.Parallel()
	a := policy.Gradient{Sum: make([]float64, policy.WeightCount), Steps: 3}
	b := policy.Gradient{Sum: make([]float64, policy.WeightCount), Steps: 1}
	a.Sum[0], b.Sum[0] = 6, 2
	if got := policy.Average([]policy.Gradient{a, b})[0]; got != 2 {
		t.Errorf("got %v, want 2", got)
	}
}

func TestApplyGoesUphillAndLeavesTheOldStateAlone(t *testing.T) {
	t.Parallel()
	before := policy.NewState(1)
	hash := before.Hash()
	gradient := make([]float64, policy.WeightCount)
	gradient[5] = 0.5
	after := before.Apply(gradient)
	if after.Round != 1 || after.Weights[5] <= before.Weights[5] {
		t.Errorf("got round %d and weight %v from %v, want round 1 and a larger weight", after.Round, after.Weights[5], before.Weights[5])
	}
	if before.Hash() != hash {
		t.Error("the old state changed")
	}
	if again := before.Apply(gradient); again.Hash() != after.Hash() {
		t.Error("the same step gave another state")
	}
}

func TestTheHashTellsEveryBit(t *testing.T) {
	t.Parallel()
	base := policy.NewState(1)
	clone := func() policy.State {
		return policy.State{
			Round: base.Round, Weights: slices.Clone(base.Weights),
			Momentum: slices.Clone(base.Momentum), Velocity: slices.Clone(base.Velocity),
		}
	}
	tests := map[string]func(*policy.State){
		"weight":   func(s *policy.State) { s.Weights[3] = math.Nextafter(s.Weights[3], 9) },
		"momentum": func(s *policy.State) { s.Momentum[3] = math.Nextafter(0, 1) },
		"velocity": func(s *policy.State) { s.Velocity[96] = math.Nextafter(0, 1) },
		"round":    func(s *policy.State) { s.Round++ },
	}
	if clone().Hash() != base.Hash() {
		t.Fatal("equal states have different hashes")
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := clone()
			change(&s)
			if s.Hash() == base.Hash() {
				t.Error("a changed state has the same hash")
			}
		})
	}
}
