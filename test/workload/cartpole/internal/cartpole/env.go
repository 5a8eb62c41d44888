// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cartpole holds the physics of the pole-balancing task of Barto,
// Sutton and Anderson (1983) with the constants and limits of CartPole-v1. It
// knows nothing about learning, randomness or networks.
package cartpole

import "math"

// Constants of the task. Lengths are metres, masses kilograms, times seconds.
const (
	Gravity    = 9.8
	CartMass   = 1.0
	PoleMass   = 0.1
	HalfLength = 0.5
	Force      = 10.0
	TimeStep   = 0.02

	// MaxAngle is the angle in radians beyond which the pole has fallen.
	MaxAngle = 12 * 2 * math.Pi / 360
	// MaxPosition is the distance from the centre beyond which the cart has left the track.
	MaxPosition = 2.4
	// MaxSteps is the length at which an episode is cut off.
	MaxSteps = 500
	// StartRange bounds each component of a start state, on both sides of zero.
	StartRange = 0.05
)

const (
	totalMass      = CartMass + PoleMass
	poleMassLength = PoleMass * HalfLength
)

// Observation is the full state of the system: cart position, cart velocity,
// pole angle and pole angular velocity.
type Observation [4]float64

// Action is the direction in which the cart is pushed.
type Action int

// The two actions.
const (
	PushLeft  Action = 0
	PushRight Action = 1
)

// Env is one running episode.
type Env struct {
	state Observation
	steps int
}

// Start begins an episode in the given state.
func Start(state Observation) *Env {
	return &Env{state: state}
}

// Observation returns the present state.
func (e *Env) Observation() Observation {
	return e.state
}

// Step pushes the cart for one time step and reports whether the episode is
// over, because the pole fell, the cart left the track or the cap was reached.
// Every step, the last one included, is worth a reward of one.
func (e *Env) Step(action Action) (done bool) {
	e.state = Next(e.state, action)
	e.steps++
	return HasFallen(e.state) || e.steps >= MaxSteps
}

// Next integrates the equations of motion over one time step by Euler's
// method: positions move by the velocities of the step's beginning.
func Next(s Observation, action Action) Observation {
	force := -Force
	if action == PushRight {
		force = Force
	}
	x, xDot, theta, thetaDot := s[0], s[1], s[2], s[3]
	sin, cos := math.Sin(theta), math.Cos(theta)

	push := (force + poleMassLength*thetaDot*thetaDot*sin) / totalMass
	thetaAcc := (Gravity*sin - cos*push) /
		(HalfLength * (4.0/3.0 - PoleMass*cos*cos/totalMass))
	xAcc := push - poleMassLength*thetaAcc*cos/totalMass

	return Observation{
		x + TimeStep*xDot,
		xDot + TimeStep*xAcc,
		theta + TimeStep*thetaDot,
		thetaDot + TimeStep*thetaAcc,
	}
}

// HasFallen reports whether a state lies outside the limits of the task.
func HasFallen(s Observation) bool {
	return math.Abs(s[0]) > MaxPosition || math.Abs(s[2]) > MaxAngle
}
