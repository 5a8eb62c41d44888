// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cartpole_test

import (
	"math"
	"testing"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/cartpole"
)

func TestNextAgreesWithStepsComputedByHand(t *testing.T) {
	t.Parallel()
	// From rest and upright, F/m = 10/1.1 gives thetaAcc = -(10/1.1)/(0.5(4/3-0.1/1.1))
	// = -600/41 and xAcc = 10/1.1 + 0.05*600/41/1.1 = 400/41.
	tests := map[string]struct {
		state  cartpole.Observation
		action cartpole.Action
		want   cartpole.Observation
	}{
		"a push to the right from rest": {
			state: cartpole.Observation{}, action: cartpole.PushRight,
			want: cartpole.Observation{0, 8.0 / 41, 0, -12.0 / 41},
		},
		"a push to the left from rest": {
			state: cartpole.Observation{}, action: cartpole.PushLeft,
			want: cartpole.Observation{0, -8.0 / 41, 0, 12.0 / 41},
		},
		"a second push moves by the velocities of the first": {
			state: cartpole.Observation{0, 8.0 / 41, 0, -12.0 / 41}, action: cartpole.PushRight,
			want: cartpole.Observation{0.16 / 41, 16.0 / 41, -0.24 / 41, -24.0 / 41},
		},
		"gravity alone turns a level pole": { // thetaAcc = 9.8/(0.5*4/3) = 14.7, xAcc = (-10+0.05*4)/1.1
			state: cartpole.Observation{1, 3, math.Pi / 2, 2}, action: cartpole.PushLeft,
			want: cartpole.Observation{1.06, 3 - 0.02*9.8/1.1, math.Pi/2 + 0.04, 2.294},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := cartpole.Next(tc.state, tc.action)
			for i := range got {
				if math.Abs(got[i]-tc.want[i]) > 1e-12 {
					t.Errorf("component %d: got %v, want %v", i, got[i], tc.want[i])
				}
			}
		})
	}
}

func TestHasFallenKnowsTheLimits(t *testing.T) {
	t.Parallel()
	degree := math.Pi / 180
	tests := map[string]struct {
		state cartpole.Observation
		want  bool
	}{
		"upright in the centre":  {cartpole.Observation{}, false},
		"at the end of track":    {cartpole.Observation{2.4, 9, 0, 9}, false},
		"off the track, right":   {cartpole.Observation{2.4001}, true},
		"off the track, left":    {cartpole.Observation{-2.4001}, true},
		"leaning by 11.9 degree": {cartpole.Observation{0, 0, 11.9 * degree}, false},
		"leaning by 12.1 degree": {cartpole.Observation{0, 0, -12.1 * degree}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := cartpole.HasFallen(tc.state); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPushingOneWayFallsAfterNineSteps(t *testing.T) {
	t.Parallel()
	env := cartpole.Start(cartpole.Observation{})
	steps := 1
	for !env.Step(cartpole.PushRight) {
		steps++
	}
	// theta after n steps is about -(12/41)*0.02*n(n-1)/2 without gravity's
	// help, which passes 12 degrees at n = 9 or 10; gravity makes it 9.
	if steps != 9 {
		t.Errorf("fell after %d steps, want 9", steps)
	}
}

func TestAnEpisodeIsCutOffAtTheCap(t *testing.T) {
	t.Parallel()
	env := cartpole.Start(cartpole.Observation{})
	steps := 1
	for !env.Step(balance(env.Observation())) {
		steps++
	}
	if steps != cartpole.MaxSteps {
		t.Errorf("got %d steps, want %d", steps, cartpole.MaxSteps)
	}
}

// balance is a linear controller that never drops the pole.
func balance(o cartpole.Observation) cartpole.Action {
	if 0.1*o[0]+0.3*o[1]+2*o[2]+o[3] > 0 {
		return cartpole.PushRight
	}
	return cartpole.PushLeft
}
