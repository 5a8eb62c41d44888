// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

// truth is a job whose network costs more between nodes than within one.
var truth = Throughput{AlphaC: 0.05, BetaC: 0.002, AlphaN: 0.08, BetaN: 0.004, AlphaR: 0.03, BetaR: 0.002, Gamma: 1.6}

func observe(t *Throughput, nodes, replicas, atomic int) Observation {
	c := Config{Nodes: nodes, Replicas: replicas, Atomic: atomic}
	return Observation{Nodes: nodes, Replicas: replicas, Atomic: atomic, Step: t.StepTime(c), Accumulate: t.accumulate(atomic)}
}

func TestAFitPredictsWhatItHasNotSeen(t *testing.T) {
	seen := []Observation{
		observe(&truth, 1, 1, 32), observe(&truth, 1, 2, 32), observe(&truth, 1, 4, 64),
		observe(&truth, 2, 8, 48), observe(&truth, 3, 12, 32), observe(&truth, 1, 3, 128),
	}
	fitted := Fit(seen, nil)
	for _, c := range []Config{{1, 2, 100, 0}, {2, 8, 32, 1}, {4, 16, 40, 0}, {6, 24, 32, 2}} {
		if want, got := truth.StepTime(c), fitted.StepTime(c); math.Abs(got-want) > 0.05*want {
			t.Errorf("%+v: a step takes %.4f s, want %.4f s within 5 %%", c, got, want)
		}
	}
}

func TestAFitOfOneObservationIsOptimistic(t *testing.T) {
	fitted := Fit([]Observation{observe(&truth, 1, 1, 32)}, nil)
	one, four := fitted.Rate(Config{1, 1, 32, 0}), fitted.Rate(Config{1, 4, 32, 0})
	if four < 3.9*one {
		t.Errorf("four replicas are expected to be %.2f times as fast as one, want about 4: else they are never tried", four/one)
	}
}

func TestTheGradientOfTheLossIsThatOfDifferences(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	p := newProblem([]Observation{
		observe(&truth, 1, 1, 32), observe(&truth, 1, 2, 32), observe(&truth, 1, 4, 64), observe(&truth, 2, 8, 48), observe(&truth, 3, 12, 24),
	})
	for range 50 {
		var v vector
		for i := range v {
			v[i] = -4 + 3*random.Float64()
		}
		v[gamma] = 1.1 + 4*random.Float64()
		p.loss(&v, math.Inf(1))
		gradient := p.gradient()
		for i := range v {
			const step = 1e-6
			up, down := v, v
			up[i] += step
			down[i] -= step
			high, low := p.loss(&up, math.Inf(1)), p.loss(&down, math.Inf(1))
			if want := (high - low) / (2 * step); math.Abs(gradient[i]-want) > 1e-5*(1+math.Abs(want)) {
				t.Fatalf("parameter %d at %v: gradient %g, differences say %g", i, v, gradient[i], want)
			}
		}
	}
}

func TestTheBestBatchGrowsWithTheNoise(t *testing.T) {
	bounds := Bounds{Initial: 128, Max: 4096, MinAtomic: 16, MaxAtomic: 256}
	quiet := Goodput{Throughput: truth, Noise: Noise{Sqr: 1, Var: 0.1}, Bounds: bounds}
	noisy := Goodput{Throughput: truth, Noise: Noise{Sqr: 0.1, Var: 10}, Bounds: bounds}
	small, _ := quiet.Best(2, 8)
	large, _ := noisy.Best(2, 8)
	if small.Batch() >= large.Batch() {
		t.Errorf("batch %d without noise, %d with it: the second is to be larger", small.Batch(), large.Batch())
	}
	for _, c := range []Config{small, large} {
		if c.Batch() < bounds.Initial || c.Atomic < bounds.MinAtomic || c.Atomic > bounds.MaxAtomic {
			t.Errorf("%+v is outside of %+v", c, bounds)
		}
	}
}

func TestTheBestBatchIsTheBestOfAllThatRoundToIt(t *testing.T) {
	g := Goodput{Throughput: truth, Noise: Noise{Sqr: 0.2, Var: 3}, Bounds: Bounds{Initial: 128, Max: 4096, MinAtomic: 16, MaxAtomic: 256}}
	for _, replicas := range []int{1, 2, 4, 8, 16} {
		nodes := (replicas + 3) / 4
		best, value := g.Best(nodes, replicas)
		if got := g.Of(best); math.Abs(got-value) > 1e-9*value {
			t.Errorf("%d replicas: goodput %g, of its configuration %g", replicas, value, got)
		}
		for batch := g.Bounds.Initial; batch <= g.Bounds.Max; batch += 16 {
			atomic, accumulation := g.Bounds.Split(float64(batch), replicas)
			c := Config{Nodes: nodes, Replicas: replicas, Atomic: atomic, Accumulation: accumulation}
			if atomic >= g.Bounds.MinAtomic && atomic <= g.Bounds.MaxAtomic && g.Of(c) > 1.02*value {
				t.Errorf("%d replicas: %+v is 2 %% better than %+v", replicas, c, best)
			}
		}
	}
}

func TestMoreReplicasThanTheLargestBatchHoldsHaveNoGoodput(t *testing.T) {
	g := Goodput{Throughput: truth, Bounds: Bounds{Initial: 128, Max: 256, MinAtomic: 16, MaxAtomic: 64}}
	if c, value := g.Best(8, 32); value != 0 {
		t.Errorf("32 replicas of at least 16 samples: %+v of goodput %g, want none", c, value)
	}
}

func BenchmarkFit(b *testing.B) {
	seen := []Observation{
		observe(&truth, 1, 1, 32), observe(&truth, 1, 2, 32), observe(&truth, 1, 4, 64),
		observe(&truth, 2, 8, 48), observe(&truth, 3, 12, 32), observe(&truth, 1, 3, 128),
	}
	for b.Loop() {
		Fit(seen, nil)
	}
}
