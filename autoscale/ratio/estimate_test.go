// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// learners are the roles of a job whose consumer has some replicas.
type learners int32

func (learners) Producer(role string) string {
	if role == "collector" {
		return role
	}
	return ""
}

func (learners) IsConsumer(role string) bool { return role == "learner" }

func (l learners) Consumers() int32 { return int32(l) }

// reports are the sums of di-servers, which an estimator reads every 20 seconds.
type reports struct {
	estimator *Estimator
	roles     learners
	rates     []v2alpha1.RoleRates
	now       time.Time
}

func newReports(state State) *reports {
	return &reports{estimator: NewEstimator(EstimatorSettings{}, state), roles: 1, now: start}
}

// add adds 20 seconds of a worker of a role to the sums of a di-server. The estimator does not learn them.
func (r *reports) add(server, role string, rate float64) {
	for i := range r.rates {
		if r.rates[i].Server == server && r.rates[i].Role == role {
			work20(&r.rates[i], rate, r.now)
			return
		}
	}
	r.rates = append(r.rates, v2alpha1.RoleRates{Server: server, Role: role, Reporters: 1})
	work20(&r.rates[len(r.rates)-1], rate, r.now)
}

func work20(entry *v2alpha1.RoleRates, rate float64, now time.Time) {
	entry.UpdatedAt = metav1.NewMicroTime(now)
	entry.ReportedMilliseconds += 20_000
	entry.BusyMilliseconds += 20_000
	entry.Samples += int64(20 * rate)
}

// round moves the clock by 20 seconds, in which a worker reports to a di-server.
func (r *reports) round(server, role string, rate float64) {
	r.now = r.now.Add(20 * time.Second)
	r.add(server, role, rate)
	r.estimator.Learn(r.rates, r.roles, r.now)
}

func (r *reports) rounds(n int, server, role string, rate float64) {
	for range n {
		r.round(server, role, rate)
	}
}

func (r *reports) measure() Measurement {
	return r.estimator.Measure(r.rates, r.roles, []string{"collector"}, r.now)
}

func TestAStepIsTakenAfterTwoRoundsAndNoiseIsNot(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	r.rounds(30, "a", "collector", 20)
	r.round("a", "collector", 40)
	r.rounds(5, "a", "collector", 20)
	if got := r.measure().ProducerCapacity; math.Abs(got-20) > 3 {
		t.Errorf("capacity after one odd round is %g, want about 20", got)
	}
	r.rounds(2, "a", "collector", 40)
	if got := r.measure().ProducerCapacity; math.Abs(got-40) > 1 {
		t.Errorf("capacity after a step is %g, want 40", got)
	}
}

func TestTheFirstSumsOfAJobAreACapacityAtOnce(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	r.round("a", "collector", 20)
	if got := r.measure().ProducerCapacity; got != 20 {
		t.Errorf("capacity is %g, want 20", got)
	}
}

func TestOldSumsOfAnUnknownServerAndSumsThatFallAreNotCounted(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	for range 10 {
		r.add("a", "collector", 500)
	}
	r.rounds(5, "a", "collector", 20)
	r.rates[0] = v2alpha1.RoleRates{Server: "a", Role: "collector", Reporters: 1}
	r.rounds(5, "a", "collector", 20)
	if got := r.measure().ProducerCapacity; got != 20 {
		t.Errorf("capacity is %g, want 20", got)
	}
}

func TestAConsumerThatReportsToAnotherServerCountsOnce(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	r.rounds(20, "a", "learner", 100)
	r.rates[0].BatchSamples, r.rates[0].Queue = 800, 600
	for i := range 20 {
		r.round("b", "learner", 100)
		r.rates[1].BatchSamples, r.rates[1].Queue = 800, 600
		if m := r.measure(); math.Abs(m.ConsumerCapacity-100) > 1 || m.Batch != 800 || m.Queue != 600 {
			t.Fatalf("round %d: measurement is %+v, want a capacity of 100, a batch of 800 and a queue of 600", i, m)
		}
	}
}

// A step of 300 s, a tenth of it without samples, counts when it ends.
func TestALongStepIsOneShareOfTimeAndTheConsumerIsCurrentUntilTheNext(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	entry := v2alpha1.RoleRates{Server: "a", Role: "learner", Reporters: 1, BatchSamples: 800, UpdatedAt: metav1.NewMicroTime(start)}
	r.estimator.Learn([]v2alpha1.RoleRates{entry}, r.roles, start)
	for second := 20; second <= 3000; second += 20 {
		r.now = start.Add(time.Duration(second) * time.Second)
		entry.UpdatedAt = metav1.NewMicroTime(r.now)
		entry.ReportedMilliseconds = int64(second) * 1000
		steps := int64(second / 300)
		entry.Samples, entry.BusyMilliseconds, entry.StarvedMilliseconds = 27_000*steps, 270_000*steps, 30_000*steps
		r.rates = []v2alpha1.RoleRates{entry}
		r.estimator.Learn(r.rates, r.roles, r.now)
		if m := r.measure(); second >= 320 && (math.Abs(m.Starved-0.1) > 0.01 || math.Abs(m.ConsumerCapacity-100) > 1) {
			t.Fatalf("second %d: starved %.2f with a capacity of %g, want 0.1 and 100", second, m.Starved, m.ConsumerCapacity)
		}
	}
}

func TestAConsumerThatReportsWhenAStepEndsIsCurrentUntilTheNextReport(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		r := newReports(State{})
		entry := v2alpha1.RoleRates{Server: "a", Role: "learner", Reporters: 1, BatchSamples: 800}
		for step := range 4 {
			r.now = start.Add(time.Duration(600*step) * time.Second)
			entry.UpdatedAt = metav1.NewMicroTime(r.now.Add(ahead))
			r.rates = []v2alpha1.RoleRates{entry}
			r.estimator.Learn(r.rates, r.roles, r.now)
		}
		for after, want := range map[time.Duration]float64{0: 800, 590 * time.Second: 800, 1300 * time.Second: 0} {
			if m := r.estimator.Measure(r.rates, r.roles, nil, r.now.Add(after)); m.Batch != want {
				t.Errorf("%v after a report of a di-server that is %v ahead: the batch is %g, want %g", after, ahead, m.Batch, want)
			}
		}
	}
}

func TestConsumersAtSeveralServersAddUp(t *testing.T) {
	t.Parallel()
	r := newReports(State{})
	r.roles = 2
	for range 20 {
		r.add("a", "learner", 100)
		r.round("b", "learner", 60)
	}
	if got := r.measure().ConsumerCapacity; math.Abs(got-160) > 1 {
		t.Errorf("capacity is %g, want 160", got)
	}
}

func TestAStateIsTheCapacityUntilThereAreReports(t *testing.T) {
	t.Parallel()
	r := newReports(State{ProducerCapacity: 20, ConsumerCapacity: math.Inf(1)})
	r.rates = []v2alpha1.RoleRates{{Server: "a", Role: "learner", Reporters: -1, Samples: math.MaxInt64, BusyMilliseconds: -5}}
	r.estimator.Learn(r.rates, r.roles, r.now)
	if m := r.measure(); m.ProducerCapacity != 20 || m.ConsumerCapacity != 0 {
		t.Errorf("measurement is %+v, want the capacity of the state only", m)
	}
}

func TestAClonedEstimatorLearnsSeparately(t *testing.T) {
	r := newReports(State{})
	learn := func(estimator *Estimator, rate float64) Measurement {
		r.now = r.now.Add(20 * time.Second)
		r.add("a", "collector", rate)
		r.add("a", "learner", 4*rate)
		estimator.Learn(r.rates, r.roles, r.now)
		return estimator.Measure(r.rates, r.roles, []string{"collector"}, r.now)
	}
	for range 10 {
		learn(r.estimator, 20)
	}
	before := r.estimator.Measure(r.rates, r.roles, []string{"collector"}, r.now)
	clone := r.estimator.Clone()
	if got := clone.Measure(r.rates, r.roles, []string{"collector"}, r.now); !reflect.DeepEqual(got, before) {
		t.Errorf("the clone measures %+v, want %+v", got, before)
	}
	rates, now := slices.Clone(r.rates), r.now
	for range 10 {
		learn(clone, 60)
	}
	if got := r.estimator.Measure(rates, r.roles, []string{"collector"}, now); !reflect.DeepEqual(got, before) {
		t.Errorf("after the clone has learned, the original measures %+v, want %+v", got, before)
	}
	if got := clone.Measure(r.rates, r.roles, []string{"collector"}, r.now); math.Abs(got.ProducerCapacity-60) > 6 {
		t.Errorf("the clone measures a capacity of %v, want about 60", got.ProducerCapacity)
	}
}
