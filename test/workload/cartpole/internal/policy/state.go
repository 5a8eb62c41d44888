// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
)

// Settings of the optimiser (Adam).
const (
	learningRate  = 0.01
	momentumDecay = 0.9
	velocityDecay = 0.999
	epsilon       = 1e-8
)

// State is everything that a learner holds: the weights, the optimiser's
// moments and the number of steps made. A learner that is given a state
// continues as if it had made those steps itself.
type State struct {
	Round int `json:"round"`
	// Steps counts the environment steps that were learnt from so far. It
	// decides nothing, so it is no part of the hash.
	Steps    int       `json:"steps"`
	Weights  Weights   `json:"weights"`
	Momentum []float64 `json:"momentum"`
	Velocity []float64 `json:"velocity"`
}

// NewState returns the state before the first step.
func NewState(seed uint64) State {
	return State{
		Weights:  NewWeights(seed),
		Momentum: make([]float64, WeightCount),
		Velocity: make([]float64, WeightCount),
	}
}

// Check tells why s is not a state of this network.
func (s State) Check() error {
	if err := s.Weights.Check(); err != nil {
		return err
	}
	if len(s.Momentum) != WeightCount || len(s.Velocity) != WeightCount {
		return fmt.Errorf("moments: got %d and %d numbers, want %d each", len(s.Momentum), len(s.Velocity), WeightCount)
	}
	return nil
}

// Apply returns the state after one ascent step along the average gradient.
func (s State) Apply(gradient []float64) State {
	next := State{
		Round:    s.Round + 1,
		Steps:    s.Steps,
		Weights:  slices.Clone(s.Weights),
		Momentum: slices.Clone(s.Momentum),
		Velocity: slices.Clone(s.Velocity),
	}
	momentumBias := 1 - math.Pow(momentumDecay, float64(next.Round))
	velocityBias := 1 - math.Pow(velocityDecay, float64(next.Round))
	for i, g := range gradient {
		next.Momentum[i] = momentumDecay*s.Momentum[i] + (1-momentumDecay)*g
		next.Velocity[i] = velocityDecay*s.Velocity[i] + (1-velocityDecay)*g*g
		step := next.Momentum[i] / momentumBias / (math.Sqrt(next.Velocity[i]/velocityBias) + epsilon)
		next.Weights[i] += learningRate * step
	}
	return next
}

// Hash is a short digest of every bit that the next step depends on. Learners that made the same
// steps have the same hash.
func (s State) Hash() string {
	digest := sha256.New()
	var number [8]byte
	write := func(bits uint64) {
		binary.LittleEndian.PutUint64(number[:], bits)
		digest.Write(number[:])
	}
	write(uint64(s.Round))
	for _, values := range [][]float64{s.Weights, s.Momentum, s.Velocity} {
		for _, v := range values {
			write(math.Float64bits(v))
		}
	}
	return hex.EncodeToString(digest.Sum(nil))[:16]
}
