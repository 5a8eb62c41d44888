// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
)

// These constants define the work of a round and the size of a step. A seed gives the same curve
// only with the same constants.
const (
	collectUnits     = 8
	evaluateUnits    = 4
	evaluateEpisodes = 5 // of each unit
	changeSize       = 1
	stepSize         = 0.15
	maxSteps         = 500
)

// weights are the policy: the logistic function of the weighted state is the
// probability of a push to the right.
type weights [4]float64

func (w weights) pushRight(c cart) float64 {
	return 1 / (1 + math.Exp(-w[0]*c[0]-w[1]*c[1]-w[2]*c[2]-w[3]*c[3]))
}

// plus returns w + scale * change.
func (w weights) plus(scale float64, change weights) weights {
	for i := range w {
		w[i] += scale * change[i]
	}
	return w
}

// state is the complete state of a learner. A learner that receives a state continues as if it had
// taken the previous steps.
type state struct {
	Round int `json:"round"`
	// Steps counts the environment steps that the weights were learnt from.
	Steps   int     `json:"steps"`
	Weights weights `json:"weights"`
}

// hash is a digest of every bit that the next step depends on.
func (s state) hash() string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%d %x", s.Round, s.Weights)))[:16]
}

// unit is work that one collector or evaluator does at a time. Its result depends on the unit
// alone, not on the process that plays it.
type unit struct {
	Seed     uint64  `json:"seed"`
	Round    int     `json:"round"`
	Index    int     `json:"index"`
	Evaluate bool    `json:"evaluate"`
	Weights  weights `json:"weights"`
}

// units returns the units of a round.
func units(seed uint64, s state, evaluate bool) []unit {
	all := make([]unit, collectUnits)
	if evaluate {
		all = all[:evaluateUnits]
	}
	for i := range all {
		all[i] = unit{Seed: seed, Round: s.Round, Index: i, Evaluate: evaluate, Weights: s.Weights}
	}
	return all
}

// random returns the unit's own stream of random numbers.
func (u unit) random() *rand.Rand {
	stream := uint64(u.Round)<<8 | uint64(u.Index)<<1
	if u.Evaluate {
		stream |= 1
	}
	return rand.New(rand.NewPCG(u.Seed, stream))
}

// change returns the random change of the weights that a collecting unit tries.
func change(random *rand.Rand) weights {
	var c weights
	for i := range c {
		c[i] = changeSize * random.NormFloat64()
	}
	return c
}

// play returns the lengths of the unit's episodes, which are their returns. A
// collecting unit plays one episode with its change and one with the opposite.
func (u unit) play() []int {
	random := u.random()
	if !u.Evaluate {
		c := change(random)
		return []int{episode(u.Weights.plus(1, c), random), episode(u.Weights.plus(-1, c), random)}
	}
	returns := make([]int, evaluateEpisodes)
	for i := range returns {
		returns[i] = episode(u.Weights, random)
	}
	return returns
}

// check returns an error for invalid returns that a process sent for the unit.
func (u unit) check(returns []int) error {
	want := 2
	if u.Evaluate {
		want = evaluateEpisodes
	}
	if len(returns) != want {
		return fmt.Errorf("unit %d of round %d: got %d returns, want %d", u.Index, u.Round, len(returns), want)
	}
	return nil
}

// stepRequest requests one step. It contains the state, so a learner that was restarted or missed
// steps takes the same step as the others.
type stepRequest struct {
	Seed    uint64  `json:"seed"`
	State   state   `json:"state"`
	Returns [][]int `json:"returns"`
}

// step takes one step of an evolution strategy: the weights move along the changes, each weighted
// by how much better it was than its opposite. The sums are in the order of the units, so equal
// returns give equal bits.
func (r stepRequest) step() (state, error) {
	next := r.State
	next.Round++
	all := units(r.Seed, r.State, false)
	if len(r.Returns) != len(all) {
		return state{}, fmt.Errorf("step of round %d: got the returns of %d units, want %d", next.Round, len(r.Returns), len(all))
	}
	var update weights
	for i, u := range all {
		returns := r.Returns[i]
		if err := u.check(returns); err != nil {
			return state{}, err
		}
		next.Steps += returns[0] + returns[1]
		update = update.plus(float64(returns[0]-returns[1]), change(u.random()))
	}
	if spread := deviation(r.Returns); spread > 0 {
		next.Weights = next.Weights.plus(stepSize/(changeSize*collectUnits*spread), update)
	}
	return next, nil
}

func mean(returns [][]int) float64 {
	sum, count := 0, 0
	for _, some := range returns {
		for _, r := range some {
			sum, count = sum+r, count+1
		}
	}
	return float64(sum) / float64(max(count, 1))
}

func deviation(returns [][]int) float64 {
	middle, squares, count := mean(returns), 0.0, 0
	for _, some := range returns {
		for _, r := range some {
			squares, count = squares+(float64(r)-middle)*(float64(r)-middle), count+1
		}
	}
	return math.Sqrt(squares / float64(max(count, 1)))
}

// cart is the state of the task of Barto, Sutton and Anderson (1983), with the
// constants and limits of CartPole-v1: position, velocity, angle, angular velocity.
type cart [4]float64

func start(random *rand.Rand) cart {
	var c cart
	for i := range c {
		c[i] = 0.1*random.Float64() - 0.05
	}
	return c
}

// episode returns the number of steps for which the pole stays up.
func episode(w weights, random *rand.Rand) int {
	c := start(random)
	for n := 1; n <= maxSteps; n++ {
		if c = c.pushed(random.Float64() < w.pushRight(c)); c.hasFallen() {
			return n
		}
	}
	return maxSteps
}

// pushed returns the state a time step later, by Euler's method.
func (c cart) pushed(right bool) cart {
	const force, step, gravity, total, pole, half = 10, 0.02, 9.8, 1.1, 0.1, 0.5
	push := -float64(force)
	if right {
		push = force
	}
	sin, cos := math.Sincos(c[2])
	acceleration := (push + pole*half*c[3]*c[3]*sin) / total
	angular := (gravity*sin - cos*acceleration) / (half * (4.0/3 - pole*cos*cos/total))
	linear := acceleration - pole*half*angular*cos/total
	return cart{c[0] + step*c[1], c[1] + step*linear, c[2] + step*c[3], c[3] + step*angular}
}

func (c cart) hasFallen() bool {
	return math.Abs(c[0]) > 2.4 || math.Abs(c[2]) > 12*2*math.Pi/360
}
