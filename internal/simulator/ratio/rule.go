// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"slices"
	"strconv"
	"time"

	rule "opendilab.org/di-orchestrator/autoscale/ratio"
)

// sizer decides about the number of producers once a second.
type sizer interface {
	size(p *plant) int
}

// epoch is the time of second 0.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func timeAt(second int) time.Time { return epoch.Add(time.Duration(second) * time.Second) }

// operator is the rule of autoscale/ratio with its estimator, as the operator runs them.
type operator struct {
	settings  rule.Settings
	estimator *rule.Estimator
	state     rule.State
	nextAt    time.Time
	// late are reports that arrive later.
	late []lateReport
	// errs are the factors by which estimated capacities are wrong.
	producerError, consumerError float64
	seen                         int
	last                         rule.Decision
}

type lateReport struct {
	arrives    int
	isConsumer bool
	report     rule.Report
}

const task = "collector"

func newOperator(options Options) *operator {
	settings := options.Rule
	settings.Pools = []rule.Pool{{Task: task, Min: minReplicas, Max: maxReplicas}}
	return &operator{
		settings: settings, estimator: rule.NewEstimator(options.Estimator, rule.State{}), nextAt: epoch,
		producerError: options.ProducerError, consumerError: options.ConsumerError, seen: -1,
	}
}

func (o *operator) size(p *plant) int {
	o.report(p)
	now := timeAt(p.second)
	requested := len(p.producers)
	if now.Before(o.nextAt) {
		return requested
	}
	m := o.estimator.Measure([]string{task}, now)
	m.ProducerCapacity *= o.producerError
	m.Pools[0].Capacity *= o.producerError
	m.ConsumerCapacity *= o.consumerError
	m.Pools[0].Requested, m.Pools[0].Running = int32(requested), int32(p.running())
	m.StartDelays = o.startDelays(p)
	o.last = rule.Decide(o.settings, o.state, m, now)
	o.state, o.nextAt = o.last.Next, o.last.NextAt
	return int(o.last.Replicas)
}

// startDelays returns the delays of the last hundred producers that were requested.
func (o *operator) startDelays(p *plant) []time.Duration {
	var delays []time.Duration
	for _, one := range p.producers[max(0, len(p.producers)-100):] {
		if one.id < startReplicas {
			continue
		}
		delays = append(delays, time.Duration(min(one.runs, p.second)-one.requested)*time.Second)
	}
	return delays
}

// report delivers the reports of a second: each replica sends one every ten seconds.
func (o *operator) report(p *plant) {
	for _, one := range p.producers {
		if one.runs <= p.second && (p.second-one.id)%10 == 0 && p.second > one.since {
			o.send(p, false, rule.Report{
				Replica: strconv.Itoa(one.id), Time: float64(p.second) + o.clock(p, one.id),
				Samples: p.made - one.madeBefore, Busy: p.worked - one.workedBefore,
				Blocked: max(float64(p.second+1-one.since)-(p.worked-one.workedBefore), 0),
			})
		}
	}
	if p.second%10 == 0 && p.second > p.scenario.ConsumerStart {
		c := &p.consumer
		o.send(p, true, rule.Report{
			Replica: "learner", Time: float64(p.second), Samples: c.samples, Busy: c.samplesBusy, Starved: c.starved,
			Batch: batch, Queue: p.queue, QueueCapacity: capacity, MaxStaleness: staleness,
		})
	}
	o.late = slices.DeleteFunc(o.late, func(l lateReport) bool {
		if l.arrives > p.second {
			return false
		}
		o.receive(p, l.isConsumer, l.report)
		return true
	})
}

// clock returns by how much the clock of a replica is off.
func (o *operator) clock(p *plant, id int) float64 {
	if p.scenario.LosesReports == 0 {
		return 0
	}
	return float64(id*977%7200 - 3600)
}

// send loses and delays reports as the scenario says.
func (o *operator) send(p *plant, isConsumer bool, r rule.Report) {
	if p.scenario.LosesReports > 0 {
		switch x := p.random.Float64(); {
		case x < p.scenario.LosesReports:
			return
		case x < 2*p.scenario.LosesReports:
			o.late = append(o.late, lateReport{p.second + 5 + p.random.IntN(30), isConsumer, r})
			return
		}
	}
	o.receive(p, isConsumer, r)
}

func (o *operator) receive(p *plant, isConsumer bool, r rule.Report) {
	r.Received, r.Task = timeAt(p.second), task
	if isConsumer {
		o.estimator.AddConsumer(r)
		return
	}
	o.estimator.AddProducer(r)
}
