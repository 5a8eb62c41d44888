// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"testing"
	"time"
)

// feed reports a producer that makes samples at a rate, for some rounds after a second.
func feed(e *Estimator, from, rounds int, rate, samples float64) float64 {
	for i := range rounds {
		second := from + 10*(i+1)
		samples += 10 * rate
		e.AddProducer(Report{
			Task: "collector", Replica: "0", Time: float64(second), Received: start.Add(time.Duration(second) * time.Second),
			Samples: samples, Busy: float64(second),
		})
	}
	return samples
}

func capacityAt(e *Estimator, second int) float64 {
	return e.Measure([]string{"collector"}, start.Add(time.Duration(second)*time.Second)).ProducerCapacity
}

func TestAStepIsTakenAfterAFewReportsAndNoiseIsNot(t *testing.T) {
	t.Parallel()
	e := NewEstimator(EstimatorSettings{}, State{})
	samples := feed(e, 0, 30, 20, 0)
	samples = feed(e, 300, 1, 40, samples)
	samples = feed(e, 310, 5, 20, samples)
	if got := capacityAt(e, 370); math.Abs(got-20) > 3 {
		t.Errorf("capacity after one odd report is %g, want about 20", got)
	}
	feed(e, 360, 4, 40, samples)
	if got := capacityAt(e, 410); math.Abs(got-40) > 1 {
		t.Errorf("capacity after a step is %g, want 40", got)
	}
}

func TestRestartsAndLateReportsChangeNoCapacity(t *testing.T) {
	t.Parallel()
	e := NewEstimator(EstimatorSettings{}, State{})
	feed(e, 0, 10, 20, 0)
	at := start.Add(105 * time.Second)
	e.AddProducer(Report{Task: "collector", Replica: "0", Time: 50, Received: at, Samples: 1000, Busy: 50}) // late
	e.AddProducer(Report{Task: "collector", Replica: "0", Time: 5000, Received: at.Add(10 * time.Second), Samples: 100, Busy: 5})
	e.AddProducer(Report{Task: "collector", Replica: "0", Time: -7, Received: at.Add(20 * time.Second), Samples: 300, Busy: 15})
	if got := capacityAt(e, 140); math.Abs(got-20) > 1e-6 {
		t.Errorf("capacity is %g, want 20", got)
	}
}

func TestReportsThatCannotBeAreNotCounted(t *testing.T) {
	t.Parallel()
	e := NewEstimator(EstimatorSettings{}, State{ProducerCapacity: 20})
	for _, x := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
		e.AddProducer(Report{Replica: "0", Received: start, Samples: x, Busy: 1})
		e.AddConsumer(Report{Replica: "0", Received: start, Samples: 1, Busy: 1, Queue: x})
	}
	if m := e.Measure([]string{"collector"}, start.Add(time.Minute)); m.ProducerCapacity != 20 || m.ConsumerCapacity != 0 {
		t.Errorf("measurement is %+v, want the capacity of the state only", m)
	}
}
