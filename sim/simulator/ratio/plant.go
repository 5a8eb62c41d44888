// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"math/rand/v2"
)

// plant is the true state of a job.
type plant struct {
	scenario *Scenario
	options  Options
	random   *rand.Rand
	second   int
	// noise is the factor that all producers' speeds have in common.
	noise     float64
	producers []*producer
	// created counts producers, for their names.
	created int
	queue   float64
	// made and worked are what a producer that runs since the start has made, and the seconds it
	// was not blocked. A producer's counters are differences of them.
	made, worked float64
	// possible and delivered are the last second's production, without and with blocking.
	possible, delivered float64
	consumer            consumer
}

// producer is a replica that starts or runs.
type producer struct {
	id, requested, runs int
	// madeBefore, workedBefore and since are the plant's counters when it started.
	madeBefore, workedBefore float64
	since                    int
	counters
}

// counters are samples and seconds that a replica counts when a step or an episode ends, at second endedAt.
type counters struct {
	samples, busy, waited float64
	endedAt               int
}

// consumer is a learner. A step takes its samples while it works.
type consumer struct {
	consumed, busy, starved float64
	counters
}

func newPlant(scenario *Scenario, options Options, seed uint64) *plant {
	p := &plant{scenario: scenario, options: options, random: rand.New(rand.NewPCG(seed, 18))}
	for range startReplicas {
		p.request(0)
	}
	return p
}

// request adds a producer that runs after a delay.
func (p *plant) request(delay int) {
	p.producers = append(p.producers, &producer{id: p.created, requested: p.second, runs: p.second + delay})
	p.created++
}

// delay returns a random start delay.
func (p *plant) delay() int {
	span := p.options.MaxDelay - p.options.MinDelay
	delay := p.options.MinDelay + span*p.random.Float64()
	if p.random.Float64() < p.scenario.SlowStarts {
		delay *= 5
	}
	return int(math.Round(delay))
}

// resize requests more producers, or removes the youngest ones.
func (p *plant) resize(n int) {
	for len(p.producers) < n {
		p.request(p.delay())
	}
	p.producers = p.producers[:n]
}

// running returns how many producers run.
func (p *plant) running() int {
	n := 0
	for _, one := range p.producers {
		if one.runs <= p.second {
			n++
		}
	}
	return n
}

// ideal returns how many producers the consumer needs now.
func (p *plant) ideal() float64 {
	evaluates := float64(p.options.EvaluationSeconds) / evaluateEvery
	return p.scenario.Consumer(p.second) * (1 - evaluates) / p.scenario.Producer(p.second)
}

// evaluateEvery is the time from one evaluation to the next, in seconds.
const evaluateEvery = 600

// evaluates reports whether the consumer evaluates the policy.
func (p *plant) evaluates() bool {
	return p.second%evaluateEvery >= evaluateEvery-p.options.EvaluationSeconds
}

// step simulates a second. The caller then advances p.second.
func (p *plant) step() (starved float64) {
	p.disturb()
	for _, one := range p.producers {
		if one.runs == p.second {
			p.restart(one)
		}
	}
	speed := max(p.scenario.Producer(p.second)*(1+p.noise), 0)
	p.possible = float64(p.running()) * speed
	wanted := p.scenario.Consumer(p.second)
	if p.evaluates() {
		p.consumer.busy += min(wanted, 1)
		wanted = 0
	}
	p.delivered = min(p.possible, p.options.capacity()-p.queue+wanted)
	share := 1.0
	if p.possible > 0 {
		share = p.delivered / p.possible
	}
	p.made, p.worked = p.made+speed*share, p.worked+share
	p.queue += p.delivered
	for _, one := range p.producers {
		if one.runs <= p.second {
			p.endEpisode(one)
		}
	}
	if wanted <= 0 {
		p.queue = min(p.queue, p.options.capacity())
		return 0
	}
	consumed := min(wanted, p.queue)
	p.queue -= consumed
	return p.consumer.take(consumed, consumed/wanted, &p.options, p.second)
}

// take counts a second of the consumer, and returns the part of it in which it waited. A step is of equal samples.
func (c *consumer) take(consumed, busy float64, options *Options, second int) float64 {
	step := options.step()
	steps := math.Floor(c.consumed / step)
	c.consumed += consumed
	if options.CountsWaiting {
		c.busy++
	} else {
		c.busy, c.starved = c.busy+busy, c.starved+1-busy
	}
	if math.Floor(c.consumed/step) > steps {
		c.counters = counters{c.consumed, c.busy, c.starved, second}
	}
	return 1 - busy
}

// endEpisode counts what a producer did, when an episode ends. The producers do not begin together.
func (p *plant) endEpisode(one *producer) {
	if (p.second-one.since+one.id*37)%p.options.EpisodeSeconds != 0 {
		return
	}
	busy := p.worked - one.workedBefore
	one.counters = counters{p.made - one.madeBefore, busy, max(float64(p.second+1-one.since)-busy, 0), p.second}
}

// restart makes the counters of a producer start again.
func (p *plant) restart(one *producer) {
	one.madeBefore, one.workedBefore, one.since, one.counters = p.made, p.worked, p.second, counters{}
}

// disturb changes the noise, and loses producers.
func (p *plant) disturb() {
	// The standard deviation of the noise stays that of the options.
	keep := math.Exp(-1 / p.options.NoiseSeconds)
	p.noise = keep*p.noise + math.Sqrt(1-keep*keep)*p.options.Noise*p.random.NormFloat64()
	if p.scenario.LoseAt > 0 && p.second == p.scenario.LoseAt {
		for i := range len(p.producers) / 2 {
			p.created++
			p.producers[i] = &producer{id: p.created, requested: p.second, runs: p.second + p.delay()}
		}
	}
	if p.scenario.LosesReports > 0 {
		for _, one := range p.producers {
			if one.runs < p.second && p.random.Float64() < 1.0/1800 {
				p.restart(one)
			}
		}
	}
}
