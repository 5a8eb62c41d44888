// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"slices"
	"time"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	rule "opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/server/rates"
)

// sizer decides about the number of producers once a second.
type sizer interface {
	size(p *plant) int
}

// epoch is the time of second 0.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func timeAt(second int) time.Time { return epoch.Add(time.Duration(second) * time.Second) }

// operator is the rule of autoscale/ratio as the operator runs it: a di-server sums the reports of replicas, and
// writes the sums to the status of the job every 20 seconds.
type operator struct {
	settings rule.Settings
	server   *rates.Book
	// status is what the di-server wrote last. isPending is set if it has reports since then, which it writes at
	// second writeAt at the earliest.
	status    []v2alpha1.RoleRates
	isPending bool
	writeAt   int
	estimator *rule.Estimator
	state     rule.State
	nextAt    time.Time
	// late are reports that arrive later.
	late []lateReport
	// errs are the factors by which estimated capacities are wrong.
	producerError, consumerError float64
	last                         rule.Decision
}

type lateReport struct {
	arrives int
	report  profilings.Role
}

const (
	// job is the UID of the simulated job, task and learner the roles of its replicas.
	job, task, learner = "job", "collector", "learner"
	// reportEvery is the time between two reports of a timer, scrapeEvery of a sidecar, and writeEvery that between
	// two writes of sums.
	reportEvery, scrapeEvery, writeEvery = 10, 30, 20
)

// Sender is how replicas send their counters.
type Sender string

const (
	// Timer sends every 10 s the counters, which advance when a step or an episode ends.
	Timer Sender = "timer"
	// Loop sends them when a step or an episode ends.
	Loop Sender = "loop"
	// Sidecar sends every 30 s the samples of the steps that have ended, and busy and waiting time up to now: it
	// observes the process from outside.
	Sidecar Sender = "sidecar"
)

// Senders returns all of them.
func Senders() []Sender { return []Sender{Timer, Loop, Sidecar} }

// sends reports whether a replica sends at a second, and with which counters.
func (s Sender) sends(id, second int, ended, now counters) (counters, bool) {
	switch s {
	case Loop:
		return ended, second > 0 && ended.endedAt == second
	case Sidecar:
		return counters{samples: ended.samples, busy: now.busy, waited: now.waited}, (second-id)%scrapeEvery == 0
	default:
		return ended, (second-id)%reportEvery == 0
	}
}

// roles are those of the simulated job.
type roles struct{}

func (roles) Producer(role string) string {
	if role == task {
		return task
	}
	return ""
}

func (roles) IsConsumer(role string) bool { return role == learner }

func (roles) Consumers() int32 { return 1 }

func newOperator(options Options) *operator {
	settings := options.Rule
	settings.Pools = []rule.Pool{{Task: task, Min: minReplicas, Max: maxReplicas}}
	return &operator{
		settings: settings, server: rates.NewBook("server"), estimator: rule.NewEstimator(options.Estimator, rule.State{}), nextAt: epoch,
		producerError: options.ProducerError, consumerError: options.ConsumerError,
	}
}

// measure returns what the operator knows.
func (o *operator) measure(p *plant) rule.Measurement {
	m := o.estimator.Measure(o.status, roles{}, []string{task}, timeAt(p.second))
	m.ProducerCapacity *= o.producerError
	m.Pools[0].Capacity *= o.producerError
	m.ConsumerCapacity *= o.consumerError
	return m
}

func (o *operator) size(p *plant) int {
	o.report(p)
	now := timeAt(p.second)
	requested := len(p.producers)
	m := o.measure(p)
	if !o.settings.IsDue(m, o.nextAt, now) {
		return requested
	}
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

// report delivers the reports of a second, and writes the sums when it is time.
func (o *operator) report(p *plant) {
	sender := p.options.Sender
	for _, one := range p.producers {
		if one.runs > p.second || p.second <= one.since {
			continue
		}
		busy := p.worked - one.workedBefore
		now := counters{busy: busy, waited: max(float64(p.second+1-one.since)-busy, 0)}
		if count, sends := sender.sends(one.id, p.second, one.counters, now); sends {
			o.send(p, profilings.Role{
				Role: task, Rank: one.id, Time: float64(p.second) + o.clock(p, one.id),
				Samples: count.samples, BusySeconds: count.busy, BlockedSeconds: count.waited,
			})
		}
	}
	c := &p.consumer
	count, sends := sender.sends(0, p.second, c.counters, counters{busy: c.busy, waited: c.starved})
	if sends && p.second > p.scenario.ConsumerStart {
		o.send(p, profilings.Role{
			Role: learner, Time: float64(p.second), Samples: count.samples, BusySeconds: count.busy, StarvedSeconds: count.waited,
			BatchSamples: p.options.batch(), Queue: p.queue, QueueCapacity: p.options.capacity(), MaxStaleness: staleness,
		})
	}
	o.late = slices.DeleteFunc(o.late, func(l lateReport) bool {
		if l.arrives > p.second {
			return false
		}
		o.receive(p, &l.report)
		return true
	})
	if o.isPending && p.second >= o.writeAt {
		o.isPending, o.writeAt = false, p.second+writeEvery
		o.status = o.server.Of(job, timeAt(p.second))
		o.estimator.Learn(o.status, roles{}, timeAt(p.second))
	}
}

// clock returns by how much the clock of a replica is off.
func (o *operator) clock(p *plant, id int) float64 {
	if p.scenario.LosesReports == 0 {
		return 0
	}
	return float64(id*977%7200 + 1)
}

// send loses and delays reports as the scenario says.
func (o *operator) send(p *plant, report profilings.Role) {
	if p.scenario.LosesReports > 0 {
		switch x := p.random.Float64(); {
		case x < p.scenario.LosesReports:
			return
		case x < 2*p.scenario.LosesReports:
			o.late = append(o.late, lateReport{p.second + 5 + p.random.IntN(30), report})
			return
		}
	}
	o.receive(p, &report)
}

func (o *operator) receive(p *plant, report *profilings.Role) {
	o.isPending = true
	// The only error is that of too many reporters.
	_ = o.server.Add(job, report.Role, report, timeAt(p.second))
}
