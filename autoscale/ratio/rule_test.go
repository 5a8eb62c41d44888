// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	stdcmp "cmp"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestSettingsThatCannotBeUsedHaveTheDocumentedValues(t *testing.T) {
	t.Parallel()
	want := Settings{
		Interval: 30 * time.Second, UrgentInterval: 5 * time.Second, MinStartDelay: 30 * time.Second, MaxStartDelay: 600 * time.Second,
		TargetShare: 0.47, QueueShare: 0.6, Lookahead: 0.5, DeadBand: 0.1, ShrinkMargin: 0.3, IntegralShare: 0.07, CorrectionShare: 0.07,
		FullQueue: 1.4, UrgentShare: 0.045, GrowInterval: time.Minute, ShrinkInterval: 300 * time.Second, BlockedShare: 0.2, StarvedShare: 0.05,
	}
	bad := math.Inf(1)
	for name, given := range map[string]Settings{
		"nothing is set": {},
		"all is too large or negative": {
			Interval: -1, UrgentInterval: -1, MinStartDelay: -1, MaxStartDelay: -1, TargetShare: bad, QueueShare: bad, Lookahead: bad,
			DeadBand: bad, ShrinkMargin: bad, IntegralShare: bad, CorrectionShare: bad, FullQueue: bad, UrgentShare: bad, GrowInterval: -1,
			ShrinkInterval: -1, BlockedShare: bad, StarvedShare: math.NaN(),
		},
		"all is set": want,
	} {
		expect.Equal(t, name, want, given.completed())
	}
	rounds := EstimatorSettings{Round: 20 * time.Second, Weight: 0.14, Jump: 0.25, JumpRounds: 2}
	for _, given := range []EstimatorSettings{{}, {Round: -1, Weight: 1.5, Jump: bad, JumpRounds: -1}, rounds} {
		expect.Equal(t, "estimator", rounds, given.completed())
	}
}

func TestAMeasurementThatCannotBeKeepsTheSize(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Measurement){
		"no producer is known":        func(m *Measurement) { m.ProducerCapacity = 0 },
		"a producer is too fast":      func(m *Measurement) { m.ProducerCapacity = 1e13 },
		"a consumer is too fast":      func(m *Measurement) { m.ConsumerCapacity = 1e13 },
		"the queue is negative":       func(m *Measurement) { m.Queue = -1 },
		"the queue is no number":      func(m *Measurement) { m.Queue = math.NaN() },
		"the queue is too long":       func(m *Measurement) { m.Queue = 1e16 },
		"its capacity is too large":   func(m *Measurement) { m.QueueCapacity = 1e16 },
		"too much is in flight":       func(m *Measurement) { m.InFlight = 1e16 },
		"there is no batch":           func(m *Measurement) { m.Batch = 0 },
		"the batch is too large":      func(m *Measurement) { m.Batch = 1e16 },
		"less than none is in flight": func(m *Measurement) { m.InFlight = -1 },
	} {
		m := balanced(50)
		m.ConsumerCapacity, m.Queue = 2000, 0
		change(&m)
		const why = "the capacities of producers and consumer are not known yet"
		d := Decide(settingsFor(1, 200), State{}, m, start)
		if d.Resize || d.Reason != ReasonNoMeasurement || d.Message != why || d.Replicas != 50 || !d.NextAt.Equal(start.Add(5*time.Second)) {
			t.Errorf("%s: decision is %+v, want the size kept, and another decision soon", name, d)
		}
	}
	if d := Decide(Settings{}, State{}, balanced(50), start); d.Reason != ReasonNoMeasurement {
		t.Errorf("without pools the decision is %+v", d)
	}
}

// decided is a decision as a person reads it.
type decided struct {
	name                     string
	least, most              int32
	state                    State
	reason, message          string
	desired, replicas        int32
	requested, running, lost int32
}

func TestADecisionSaysWhatItDoesAndWhy(t *testing.T) {
	t.Parallel()
	const measured = ": the consumer takes 1000 samples/s, a producer makes 20, and 15040 of 15040 samples wait"
	for _, c := range []decided{
		{name: "balanced", reason: ReasonBalanced, message: "the size is inside the dead band" + measured, desired: 50, replicas: 50, requested: 50, running: 50},
		{name: "too few", reason: ReasonGrown, message: "from 40 to 50 producers" + measured, desired: 50, replicas: 50, requested: 40, running: 40},
		{
			name: "too few soon after a growth", state: State{GrownAt: start.Add(-59 * time.Second)}, reason: ReasonCoolingDown,
			message: "50 producers are due, and a growth was less than 1m0s ago" + measured, desired: 50, replicas: 40, requested: 40, running: 40,
		},
		{
			name: "too few a minute after a growth", state: State{GrownAt: start.Add(-time.Minute)}, reason: ReasonGrown,
			message: "from 40 to 50 producers" + measured, desired: 50, replicas: 50, requested: 40, running: 40,
		},
		{
			name: "too few after a growth in the future of a clock that was set back", state: State{GrownAt: start.Add(time.Hour)}, reason: ReasonCoolingDown,
			message: "50 producers are due, and a growth was less than 1m0s ago" + measured, desired: 50, replicas: 40, requested: 40, running: 40,
		},
		{name: "far too few", reason: ReasonGrown, message: "from 5 to 18 producers" + measured, desired: 50, replicas: 18, requested: 5, running: 5},
		{name: "too many", reason: ReasonShrunk, message: "from 70 to 52 producers" + measured, desired: 50, replicas: 52, requested: 70, running: 70},
		{
			name: "too many, and one starts", reason: ReasonStarting, message: "50 producers suffice, and 1 starts still" + measured,
			desired: 50, replicas: 70, requested: 70, running: 69,
		},
		{
			name: "too many, and some start", reason: ReasonStarting, message: "50 producers suffice, and 2 start still" + measured,
			desired: 50, replicas: 70, requested: 70, running: 68,
		},
		{
			name: "too many soon after a shrink", state: State{ShrunkAt: start.Add(-299 * time.Second)}, reason: ReasonCoolingDown,
			message: "50 producers suffice, and a shrink was less than 5m0s ago" + measured, desired: 50, replicas: 70, requested: 70, running: 70,
		},
		{
			name: "too few, at the maximum", most: 40, reason: ReasonAtBounds,
			message: "50 producers are due, and the pools have no others" + measured, desired: 50, replicas: 40, requested: 40, running: 40,
		},
		{
			name: "more than may be", most: 45, reason: ReasonAtBounds,
			message: "the bounds change 50 producers to 45" + measured, desired: 50, replicas: 45, requested: 50, running: 50,
		},
		{
			name: "fewer than may be", least: 55, reason: ReasonAtBounds,
			message: "the bounds change 50 producers to 55" + measured, desired: 50, replicas: 55, requested: 50, running: 50,
		},
		{
			name: "some cannot start, and no other pool has room", reason: ReasonAtBounds, message: "50 producers are due, and the pools have no others" + measured,
			desired: 50, replicas: 50, requested: 50, running: 40, lost: 10,
		},
	} {
		check(t, &c)
	}
}

// check decides about the case, whose producers make 20 samples/s, and whose consumer takes 1000.
func check(t *testing.T, c *decided) {
	t.Helper()
	m := balanced(50)
	m.Pools = []PoolSize{{Requested: c.requested, Running: c.running, Stuck: c.lost}}
	d := Decide(settingsFor(max(c.least, 1), stdcmp.Or(c.most, 200)), c.state, m, start)
	if d.Reason != c.reason || d.Message != c.message || d.Limit != "" {
		t.Errorf("%s: got\n%s: %s\nwant\n%s: %s\nand limit %q", c.name, d.Reason, d.Message, c.reason, c.message, d.Limit)
	}
	if d.Desired != c.desired || d.Replicas != c.replicas || d.Resize != (c.replicas != c.requested) {
		t.Errorf("%s: desired %d, replicas %d, resize %t, want %d and %d", c.name, d.Desired, d.Replicas, d.Resize, c.desired, c.replicas)
	}
}

func TestALimitSaysWhatWouldHelp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		least, most    int32
		change         func(*Measurement)
		limit, message string
	}{
		{"nothing limits", 1, 200, func(*Measurement) {}, "", ""},
		{"much is in flight", 1, 200, func(m *Measurement) { m.InFlight = 35000 }, LimitStaleness,
			"35000 samples are in flight, and a staleness of 4 versions leaves room for 5000 more, less than a batch of 8000: " +
				"raise maxStaleness, or reduce what a producer has in flight"},
		{"more than all is in flight", 1, 200, func(m *Measurement) { m.InFlight, m.MaxStaleness = 41000, 3 }, LimitStaleness,
			"41000 samples are in flight, and a staleness of 3 versions leaves room for 0 more, less than a batch of 8000: " +
				"raise maxStaleness, or reduce what a producer has in flight"},
		{"both wait", 1, 200, func(m *Measurement) { m.Blocked, m.Starved = 0.3, 0.1 }, LimitStaleness,
			"producers are blocked 30 % of the time while the consumer waits 10 %: raise maxStaleness or the capacity of the queue"},
		{"the consumer waits for something else", 1, 200, func(m *Measurement) { m.Starved = 0.4 }, LimitRange,
			"the consumer waits 40 % of the time although 15040 samples wait: it waits for something else than producers"},
		{"the consumer waits at the maximum", 1, 50, func(m *Measurement) { m.Starved, m.Queue, m.ConsumerCapacity = 0.5, 0, 2000 }, LimitRange,
			"the consumer waits 50 % of the time with the maximum of 50 producers: raise maxReplicas to 107"},
		{"the consumer waits below the maximum", 1, 51, func(m *Measurement) { m.Starved, m.Queue, m.ConsumerCapacity = 0.5, 0, 2000 }, "", ""},
		{"the consumer waits a little", 1, 50, func(m *Measurement) { m.Starved, m.Queue, m.ConsumerCapacity = 0.04, 0, 2000 }, "", ""},
		{"producers are blocked at the minimum", 50, 200, func(m *Measurement) { m.Blocked, m.ConsumerCapacity = 0.5, 500 }, LimitRange,
			"producers are blocked 50 % of the time with the minimum of 50: lower minReplicas to 25"},
		{"producers are blocked above the minimum", 49, 200, func(m *Measurement) { m.Blocked, m.ConsumerCapacity = 0.5, 500 }, "", ""},
		{"producers are blocked a little", 50, 200, func(m *Measurement) { m.Blocked, m.ConsumerCapacity = 0.19, 500 }, "", ""},
	} {
		m := balanced(50)
		c.change(&m)
		if d := Decide(settingsFor(c.least, c.most), State{}, m, start); d.Limit != c.limit || d.LimitMessage != c.message {
			t.Errorf("%s: got %q: %s\nwant %q: %s", c.name, d.Limit, d.LimitMessage, c.limit, c.message)
		}
	}
}

func TestTheStatusHasTheWholeDecision(t *testing.T) {
	t.Parallel()
	s := settingsFor(1, 200)
	s.Pools = append(s.Pools, Pool{Task: "evaluator", Max: 5})
	m := balanced(50)
	m.Pools = append(m.Pools, PoolSize{Requested: 2, Running: 2})
	m.Starved, m.Blocked, m.ProducerCapacity = 0.0126, 2, 19.9996
	m.StartDelays = []time.Duration{-time.Second, 0, 40 * time.Second, 20 * time.Second}
	d := Decide(s, State{ShrunkAt: start.Add(-time.Hour), Integral: math.NaN()}, m, start)
	at := func(when time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: when} }
	want := &v2alpha1.RatioStatus{
		DecidedAt: at(start), ShrunkAt: at(start.Add(-time.Hour)), ProducerCapacity: 20000, ConsumerCapacity: 1_000_000, Queue: 15040,
		TargetQueue: 15040, StartDelayMilliseconds: 40_000, Starved: 13, Blocked: 1000, Desired: 50, Replicas: map[string]int32{"collector": 50, "evaluator": 2},
		Reason: ReasonBalanced, Message: d.Message,
	}
	got := d.Status(s, m)
	if diff := cmp.Diff(want, got); diff != "" || d.Message == "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if state := StateFrom(got); !state.DecidedAt.Equal(start) || !state.GrownAt.IsZero() {
		t.Errorf("the state is %+v", state)
	}
	if state := StateFrom(nil); state != (State{}) {
		t.Errorf("without a status the state is %+v", state)
	}
	never := Decision{TargetQueue: math.NaN(), Next: State{Integral: 1e300}}
	if status := never.Status(s, Measurement{Queue: -1}); status.TargetQueue != 0 || status.DecidedAt != nil || status.Queue != 0 || status.Integral != 1<<53 {
		t.Errorf("what cannot be stored became %+v", status)
	}
}

func TestAMeasurementHasWhatTheRolesReport(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	for range 10 {
		r.add("a", "learner", 400)
		r.round("a", "collector", 20)
	}
	for i := range r.rates {
		entry := &r.rates[i]
		entry.BatchSamples, entry.Queue, entry.QueueCapacity, entry.MaxStaleness, entry.InFlight = 800, 600, 4000, 6, 70
	}
	m := r.measure()
	if m.Batch != 800 || m.Queue != 600 || m.QueueCapacity != 4000 || m.MaxStaleness != 6 || m.InFlight != 70 || m.Surge != 1 {
		t.Errorf("measurement is %+v", m)
	}
	if len(m.Pools) != 1 || m.Pools[0].Capacity != 20 || m.ConsumerTrend != 0 {
		t.Errorf("the pools are %+v, and the trend is %g", m.Pools, m.ConsumerTrend)
	}
	r.rates[0].Reporters = 0
	if m := r.measure(); m.Batch != 0 || m.InFlight != 70 {
		t.Errorf("without reporters of the consumer, the measurement is %+v", m)
	}
	r.rates = r.rates[1:]
	r.round("a", "collector", 20)
	r.rates = append(r.rates, v2alpha1.RoleRates{Server: "a", Role: "learner", Reporters: 1, Samples: 1, UpdatedAt: metav1.NewMicroTime(start)})
	if m := r.measure(); m.Batch != 0 {
		t.Errorf("old sums that no estimator knows count as current: %+v", m)
	}
}

func TestReplayedSamplesAreFreshOnce(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	r.add("a", "learner", 400)
	r.rates[0].ReplayRatioThousandths = 4000
	for range 5 {
		r.round("a", "learner", 400)
	}
	if got := r.measure().ConsumerCapacity; math.Abs(got-100) > 1 {
		t.Errorf("a learner that uses each sample four times takes %g fresh ones a second, want 100", got)
	}
}

func TestATrendIsFollowedWithoutLag(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	rate := 100.0
	for range 40 {
		rate *= 1.02
		r.add("a", "learner", rate)
		r.round("a", "collector", 20)
	}
	m := r.measure()
	if math.Abs(m.ConsumerCapacity/rate-1) > 0.03 || m.ConsumerTrend < 0.0007 || m.ConsumerTrend > 0.001 || m.ProducerTrend != 0 {
		t.Errorf("a ramp of 2 %% in 20 s to %.0f is measured as %.0f with trends of %g and %g", rate, m.ConsumerCapacity, m.ConsumerTrend, m.ProducerTrend)
	}
}

func TestTheShareOfBlockedTimeIsOfWorkersThatMoved(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	for range 20 {
		r.round("a", "collector", 20)
		r.rates[0].ReportedMilliseconds += 20_000
		r.rates[0].BlockedMilliseconds += 20_000
	}
	if m := r.measure(); math.Abs(m.Blocked-0.5) > 0.03 || m.Starved != 0 {
		t.Errorf("workers that wait half of the time are blocked %.2f and starved %.2f", m.Blocked, m.Starved)
	}
}

func TestAStepDownIsTakenLikeAStepUp(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	r.rounds(30, "a", "collector", 40)
	r.rounds(3, "a", "collector", 20)
	if got := r.measure().ProducerCapacity; math.Abs(got-20) > 1 {
		t.Errorf("capacity after a step down is %g, want 20", got)
	}
	r.rounds(10, "a", "collector", 21)
	for range 4 {
		r.round("a", "collector", 30)
		r.round("a", "collector", 14)
	}
	if got := r.measure().ProducerCapacity; math.Abs(got-21.5) > 2 {
		t.Errorf("capacity among levels on both sides is %g, want about 21.5", got)
	}
}
