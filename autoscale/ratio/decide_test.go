// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"slices"
	"strings"
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
		ProducerCapacity: 20, ConsumerCapacity: 20 * float64(n), Queue: 15040, QueueCapacity: 40000, Batch: 8000,
		Pools: []PoolSize{{Requested: n, Running: n}},
	}
}

func TestABalancedJobKeepsItsSize(t *testing.T) {
	t.Parallel()
	d := Decide(settingsFor(1, 100), State{}, balanced(50), start)
	if d.Resize || d.Reason != ReasonBalanced || d.Replicas != 50 || d.TargetQueue != 15040 {
		t.Errorf("decision is %+v, want 50 producers kept for a target of 15040", d)
	}
	if want := start.Add(30 * time.Second); !d.NextAt.Equal(want) {
		t.Errorf("the next decision is at %s, want %s", d.NextAt, want)
	}
}

func TestAPoolThatAQueueTakesBackInGroupsShrinksByWholeGroups(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		smaller []int32
		want    int32
	}{
		"a group that is no longer needed goes": {[]int32{30, 45}, 30},
		"a group that is needed in part stays":  {[]int32{10, 45}, 45},
		"the only group stays":                  {nil, 50},
	} {
		m := balanced(50)
		m.ConsumerCapacity, m.Pools[0].IsGrouped, m.Pools[0].Smaller = 500, true, tc.smaller
		d := Decide(settingsFor(1, 100), State{}, m, start)
		if d.Replicas != tc.want || d.Resize != (tc.want < 50) {
			t.Errorf("%s: %d producers, and resize is %v: %s", name, d.Replicas, d.Resize, d.Message)
		}
		if !d.Resize && (d.Reason != ReasonAtBounds || !strings.Contains(d.Message, "the queue takes back whole groups only")) {
			t.Errorf("%s: %s: %s", name, d.Reason, d.Message)
		}
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

func TestOneRoundCountsOnlyWhileTheQueueIsEmpty(t *testing.T) {
	t.Parallel()
	m := balanced(50)
	m.Surge = 1.8
	if d := Decide(settingsFor(1, 200), State{}, m, start); d.Resize {
		t.Errorf("with a queue the decision is %+v, want the size kept", d)
	}
	m.Queue = 0
	if d := Decide(settingsFor(1, 200), State{}, m, start); d.Replicas < 90 || d.Replicas > 100 {
		t.Errorf("without a queue the decision is %+v, want 90 producers or a few more", d)
	}
	m.Surge = math.Inf(1)
	if d := Decide(settingsFor(1, 200), State{}, m, start); d.Desired > 110 {
		t.Errorf("the decision is %+v, want at most twice the size", d)
	}
}

func TestADecisionIsDueEarlierWhileLessThanABatchWaits(t *testing.T) {
	t.Parallel()
	m, next := balanced(50), start.Add(30*time.Second)
	for _, each := range []struct {
		queue float64
		after time.Duration
		want  bool
	}{{15040, 29 * time.Second, false}, {15040, 30 * time.Second, true}, {0, 4 * time.Second, false}, {0, 5 * time.Second, true}} {
		m.Queue = each.queue
		if got := Defaults().IsDue(m, next, start.Add(each.after)); got != each.want {
			t.Errorf("with a queue of %g after %s, due is %t, want %t", each.queue, each.after, got, each.want)
		}
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

func TestALostPreferredPoolIsReplacedByTheNextAndTakesOverAgain(t *testing.T) {
	t.Parallel()
	s := Defaults()
	s.Pools = []Pool{{Task: "spot", Min: 0, Max: 50}, {Task: "steady", Min: 2, Max: 50}}
	m := balanced(42)
	m.Pools = []PoolSize{{Requested: 40, Running: 10, Stuck: 30}, {Requested: 2, Running: 2}}
	m.Queue = 4000
	d := Decide(s, State{}, m, start)
	if d.Pools[0] != 40 || d.Pools[1] < 18 {
		t.Errorf("pools are %v, want 40 of the preferred one and a growth of the next to at least 18", d.Pools)
	}
	m.Pools = []PoolSize{{Requested: 40, Running: 40}, {Requested: 32, Running: 32}}
	m.Queue = 15040
	if d = Decide(s, State{}, m, start); d.Pools[0] != 40 || d.Pools[1] > 8 {
		t.Errorf("pools are %v, want the next one given back", d.Pools)
	}
}

func TestAShrinkWaitsForStartsAndForTheLastShrink(t *testing.T) {
	t.Parallel()
	m := balanced(25)
	m.Pools = []PoolSize{{Requested: 50, Running: 40}}
	if d := Decide(settingsFor(1, 100), State{}, m, start); d.Reason != ReasonStarting || d.Resize {
		t.Errorf("decision is %+v, want to wait for starts", d)
	}
	m.Pools[0].Running = 50
	if d := Decide(settingsFor(1, 100), State{ShrunkAt: start.Add(-time.Minute)}, m, start); d.Reason != ReasonCoolingDown || d.Resize {
		t.Errorf("decision is %+v, want to wait for the cool-down", d)
	}
	if d := Decide(settingsFor(1, 100), State{}, m, start); d.Reason != ReasonShrunk || d.Replicas > 28 || d.Replicas < 24 {
		t.Errorf("decision is %+v, want about 26 producers", d)
	}
}

func TestTheStateSurvivesTheStatus(t *testing.T) {
	t.Parallel()
	s := settingsFor(1, 200)
	m := balanced(50)
	m.ConsumerCapacity, m.Queue, m.StartDelays = 2000, 1000, []time.Duration{40 * time.Second}
	d := Decide(s, State{ShrunkAt: start.Add(-time.Hour)}, m, start)
	got := StateFrom(d.Status(s, m))
	if want := d.Next; !got.GrownAt.Equal(want.GrownAt) || !got.ShrunkAt.Equal(want.ShrunkAt) || got.StartDelay != want.StartDelay ||
		math.Abs(got.Integral-want.Integral) > 1 || got.ConsumerCapacity != 2000 || got.ProducerCapacity != 20 {
		t.Errorf("state is %+v, want %+v", got, want)
	}
}

// FuzzDecide sends measurements that cannot be.
func FuzzDecide(f *testing.F) {
	for _, x := range []float64{0, -1, 1, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)} {
		f.Add(x, 1000.0, 16000.0, 8000.0, x, int32(50), int32(-3))
		f.Add(20.0, x, x, x, 0.5, int32(math.MaxInt32), int32(math.MaxInt32))
	}
	f.Fuzz(func(t *testing.T, g, c, queue, batch, other float64, requested, stuck int32) {
		m := Measurement{
			ProducerCapacity: g, ConsumerCapacity: c, Queue: queue, Batch: batch, QueueCapacity: other, InFlight: other, Starved: other,
			Blocked: other, MaxStaleness: other, ProducerTrend: other, ConsumerTrend: -other,
			Pools: []PoolSize{{Requested: requested, Running: stuck, Stuck: stuck, Capacity: other}, {Requested: stuck}},
		}
		s := Defaults()
		s.Pools = []Pool{{Task: "a", Min: 2, Max: 60}, {Task: "b", Min: 1, Max: 5}}
		d := Decide(s, State{Integral: other, StartDelay: time.Duration(requested)}, m, start)
		if d.Pools[0] < 2 || d.Pools[0] > 60 || d.Pools[1] < 1 || d.Pools[1] > 5 || d.Desired < 0 || d.Desired > maxReplicas || !d.NextAt.After(start) {
			t.Errorf("decision is %+v, want it inside the bounds", d)
		}
		if math.IsNaN(d.Next.Integral) || math.IsInf(d.Next.Integral, 0) || math.IsNaN(d.TargetQueue) {
			t.Errorf("state is %+v, want finite numbers", d.Next)
		}
	})
}
