// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy holds what is learned and how: a small network that gives the
// probability of pushing right, its policy gradient, and the optimiser step.
// Everything in it is a pure function of its arguments, computed in a fixed
// order, so that equal inputs give equal bits.
package policy

import (
	"fmt"
	"math"
	"math/rand/v2"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/cartpole"
)

const (
	inputs = len(cartpole.Observation{})
	hidden = 16

	// The weights lie flat in one slice: hidden weights row by row, hidden
	// biases, output weights, output bias.
	hiddenBias = hidden * inputs
	outWeight  = hiddenBias + hidden
	outBias    = outWeight + hidden

	// WeightCount is the number of weights of the network.
	WeightCount = outBias + 1
)

// Weights are the weights of the network, WeightCount of them.
type Weights []float64

// NewWeights returns the start weights for a seed. The output layer is zero, so
// that the first policy pushes either way with equal probability.
func NewWeights(seed uint64) Weights {
	random := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	w := make(Weights, WeightCount)
	scale := 1 / math.Sqrt(float64(inputs))
	for i := range hiddenBias {
		w[i] = scale * random.NormFloat64()
	}
	return w
}

// Check tells why w cannot be the weights of the network.
func (w Weights) Check() error {
	if len(w) != WeightCount {
		return fmt.Errorf("weights: got %d numbers, want %d", len(w), WeightCount)
	}
	return nil
}

// PushRight returns the probability of pushing right in the given state.
func (w Weights) PushRight(o cartpole.Observation) float64 {
	var activations [hidden]float64
	return w.forward(o, &activations)
}

func (w Weights) forward(o cartpole.Observation, activations *[hidden]float64) float64 {
	logit := w[outBias]
	for h := range hidden {
		sum := w[hiddenBias+h]
		for i, x := range scaled(o) {
			sum += w[h*inputs+i] * x
		}
		activations[h] = math.Tanh(sum)
		logit += w[outWeight+h] * activations[h]
	}
	return 1 / (1 + math.Exp(-logit))
}

// addLogGradient adds scale times the gradient of log pi(action|o) to sum.
func (w Weights) addLogGradient(sum []float64, o cartpole.Observation, action cartpole.Action, scale float64) {
	var activations [hidden]float64
	probability := w.forward(o, &activations)
	// d log pi / d logit of a Bernoulli policy.
	delta := scale * (float64(action) - probability)
	sum[outBias] += delta
	x := scaled(o)
	for h, a := range activations {
		sum[outWeight+h] += delta * a
		inner := delta * w[outWeight+h] * (1 - a*a)
		sum[hiddenBias+h] += inner
		for i := range x {
			sum[h*inputs+i] += inner * x[i]
		}
	}
}

// scaled brings the components of a state, whose ranges differ by an order of
// magnitude, to about one.
func scaled(o cartpole.Observation) [inputs]float64 {
	return [inputs]float64{o[0] / cartpole.MaxPosition, o[1] / 2, o[2] / cartpole.MaxAngle, o[3] / 2}
}
