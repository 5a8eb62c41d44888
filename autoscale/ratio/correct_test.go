// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"testing"
	"time"
)

// wrong returns a measurement of n producers where 50 are right, with a consumer's capacity that is wrong by a factor.
func wrong(n int32, factor float64) Measurement {
	m := balanced(n)
	m.ConsumerCapacity = 1000 * factor
	m.Starved, m.Blocked = max(0, 1-float64(n)/50), max(0, 1-50/float64(n))
	m.StarvedLast, m.BlockedLast = m.Starved, m.Blocked
	switch {
	case n < 50:
		m.Queue = 0
	case n > 50:
		m.Queue = 39000
	}
	return m
}

// follow decides every half minute for half an hour, and returns the last decision. Producers start at once.
func follow(n int32, measured func(n int32) Measurement) Decision {
	d := Decision{Replicas: n}
	for i := range 60 {
		d = Decide(settingsFor(1, 400), d.Next, measured(d.Replicas), start.Add(time.Duration(i)*30*time.Second))
	}
	return d
}

func TestWaitingCorrectsCapacitiesThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, factor := range []float64{1.0 / 3, 0.7, 1, 1.3, 3} {
		d := follow(10, func(n int32) Measurement { return wrong(n, factor) })
		if d.Replicas < 48 || d.Replicas > 55 {
			t.Errorf("with a capacity that is %.2f of the right one there are %d producers, want about 50: %s", factor, d.Replicas, d.Message)
		}
	}
	d := follow(10, func(n int32) Measurement {
		// This consumer counts waiting as busy.
		m := wrong(n, min(1, float64(n)/50))
		m.Starved, m.StarvedLast = 0, 0
		return m
	})
	if d.Replicas < 48 || d.Replicas > 62 {
		t.Errorf("for a consumer that counts waiting as busy there are %d producers, want about 50: %s", d.Replicas, d.Message)
	}
}

func TestAConsumerThatWaitsForSomethingElseKeepsItsProducers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Measurement){
		"it reports that it waits":         func(m *Measurement) { m.Starved, m.StarvedLast = 0.5, 0.5 },
		"its queue is not reported":        func(m *Measurement) { m.QueueCapacity = 0 },
		"it takes samples without a queue": func(*Measurement) {},
	} {
		d := follow(50, func(n int32) Measurement {
			m := balanced(n)
			m.ConsumerCapacity, m.Queue = 1000, 0
			change(&m)
			return m
		})
		if d.Next.Correction != 1 || d.Replicas > 56 {
			t.Errorf("%s: after half an hour there are %d producers with a correction of %.2f, want about 50 without", name, d.Replicas, d.Next.Correction)
		}
	}
}

func TestAShortWaitCorrectsNothing(t *testing.T) {
	t.Parallel()
	state := State{}
	for i := range 40 {
		m := wrong(35, 0.7)
		if i%5 == 4 {
			m.Queue = 15040
		}
		state = Decide(settingsFor(1, 400), state, m, start.Add(time.Duration(i)*30*time.Second)).Next
		if state.Correction != 1 {
			t.Fatalf("decision %d corrects by %g after two minutes", i, state.Correction)
		}
	}
	d := follow(17, func(int32) Measurement {
		m := wrong(17, 1.0/3)
		m.Pools[0].Running = 10
		return m
	})
	if d.Next.Correction != 1 {
		t.Errorf("while producers start the rule corrects by %g", d.Next.Correction)
	}
}

func TestANewLeaderContinuesWithTheCorrection(t *testing.T) {
	t.Parallel()
	d := follow(17, func(n int32) Measurement { return wrong(n, 1.0/3) })
	m := wrong(d.Replicas, 1.0/3)
	state := StateFrom(d.Status(settingsFor(1, 400), m))
	if math.Abs(state.Correction-3) > 0.5 || math.Abs(state.Correction-d.Next.Correction) > 0.001 {
		t.Errorf("the status has the correction %g, the decision %g, want about 3", state.Correction, d.Next.Correction)
	}
	for given, want := range map[float64]float64{0: 1, math.NaN(): 1, -2: 1, 1e9: 10, 1e-9: 0.1, 2: 2} {
		if got := (State{Correction: given}).checked(start).Correction; got != want {
			t.Errorf("a correction of %g counts as %g, want %g", given, got, want)
		}
	}
}
