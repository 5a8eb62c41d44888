// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"slices"
	"testing"
	"time"
)

// start is the time of the first decision of the tests.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// settingsFor returns the defaults for one pool.
func settingsFor(least, most int32) Settings {
	s := Defaults()
	s.Pools = []Pool{{Task: "collector", Min: least, Max: most}}
	return s
}

// balanced returns a measurement in which n producers of 20 samples/s feed a consumer of 20 n.
func balanced(n int32) Measurement {
	return Measurement{
		ProducerCapacity: 20, ConsumerCapacity: 20 * float64(n), Queue: 16000, QueueCapacity: 40000, Batch: 8000,
		Pools: []PoolSize{{Requested: n, Running: n}},
	}
}

func TestABalancedJobKeepsItsSize(t *testing.T) {
	t.Parallel()
	d := Decide(settingsFor(1, 100), State{}, balanced(50), start)
	if d.Resize || d.Reason != ReasonBalanced || d.Replicas != 50 || d.TargetQueue != 16000 {
		t.Errorf("decision is %+v, want 50 producers kept for a target of 16000", d)
	}
	if want := start.Add(30 * time.Second); !d.NextAt.Equal(want) {
		t.Errorf("the next decision is at %s, want %s", d.NextAt, want)
	}
}

func TestAFasterConsumerGetsProducersAtOnce(t *testing.T) {
	t.Parallel()
	m := balanced(50)
	m.ConsumerCapacity, m.Queue = 2000, 1000
	d := Decide(settingsFor(1, 200), State{GrownAt: start.Add(-time.Second)}, m, start)
	if d.Reason != ReasonGrown || d.Replicas < 100 || d.Replicas > 110 || !d.Next.GrownAt.Equal(start) {
		t.Errorf("decision is %+v, want about 100 producers at once", d)
	}
}

func TestAnUnknownCapacityKeepsTheSizeInsideItsBounds(t *testing.T) {
	t.Parallel()
	m := balanced(50)
	m.ConsumerCapacity = 0
	if d := Decide(settingsFor(1, 100), State{}, m, start); d.Resize || d.Reason != ReasonNoMeasurement {
		t.Errorf("decision is %+v, want the size kept", d)
	}
	if d := Decide(settingsFor(1, 40), State{}, m, start); !slices.Equal(d.Pools, []int32{40}) || d.Reason != ReasonAtBounds {
		t.Errorf("decision is %+v, want the maximum", d)
	}
}
