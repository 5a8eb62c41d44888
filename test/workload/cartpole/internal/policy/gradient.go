// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"math"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/cartpole"
)

// discount weighs rewards that are further away.
const discount = 0.99

// Episode is what a collector saw and did from a start state to the end. Every
// step was worth a reward of one.
type Episode struct {
	Observations []cartpole.Observation `json:"observations"`
	Actions      []cartpole.Action      `json:"actions"`
}

// Steps is the number of steps of the episode, which is its return too.
func (e Episode) Steps() int {
	return len(e.Actions)
}

// Check tells why e is not an episode.
func (e Episode) Check() error {
	if len(e.Actions) == 0 || len(e.Observations) != len(e.Actions) {
		return errors.New("episode: wants at least one step and as many observations as actions")
	}
	return nil
}

// Baseline is what returns are compared with: their mean and standard deviation
// over the whole batch of a round.
type Baseline struct {
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
}

// NewBaseline computes the baseline of a batch from the lengths of its
// episodes, which determine every discounted return to go.
func NewBaseline(lengths []int) Baseline {
	var count, sum, squares float64
	for _, n := range lengths {
		for t := range n {
			g := returnToGo(n - t)
			count++
			sum += g
			squares += g * g
		}
	}
	if count == 0 {
		return Baseline{Deviation: 1}
	}
	mean := sum / count
	return Baseline{Mean: mean, Deviation: math.Sqrt(max(squares/count-mean*mean, 0)) + 1e-8}
}

// Gradient is the summed policy gradient of one work unit.
type Gradient struct {
	Sum   []float64 `json:"sum"`
	Steps int       `json:"steps"`
}

// NewGradient computes the policy gradient (REINFORCE with a baseline) of the
// episodes of one work unit.
func NewGradient(w Weights, b Baseline, episodes []Episode) Gradient {
	g := Gradient{Sum: make([]float64, WeightCount)}
	for _, e := range episodes {
		for t, o := range e.Observations {
			advantage := (returnToGo(e.Steps()-t) - b.Mean) / b.Deviation
			w.addLogGradient(g.Sum, o, e.Actions[t], advantage)
		}
		g.Steps += e.Steps()
	}
	return g
}

// Average combines the gradients of all work units of a round, in their order:
// floating-point sums depend on it, and equal seeds must give equal curves
// however the units were spread over learners.
func Average(gradients []Gradient) []float64 {
	average := make([]float64, WeightCount)
	steps := 0
	for _, g := range gradients {
		for i, v := range g.Sum {
			average[i] += v
		}
		steps += g.Steps
	}
	for i := range average {
		average[i] /= float64(max(steps, 1))
	}
	return average
}

// returnToGo is the discounted sum of n rewards of one.
func returnToGo(n int) float64 {
	return (1 - math.Pow(discount, float64(n))) / (1 - discount)
}
