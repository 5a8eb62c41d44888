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
}

// consumer counts like a learner does: samples and busy time at the end of each gradient step.
type consumer struct {
	consumed, busy, starved float64
	samples, samplesBusy    float64
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
	return p.scenario.Consumer(p.second) / p.scenario.Producer(p.second)
}

// step simulates a second. The caller then advances p.second.
func (p *plant) step() (starved float64) {
	p.disturb()
	for _, one := range p.producers {
		if one.runs == p.second {
			one.madeBefore, one.workedBefore, one.since = p.made, p.worked, p.second
		}
	}
	speed := max(p.scenario.Producer(p.second)*(1+p.noise), 0)
	p.possible = float64(p.running()) * speed
	wanted := p.scenario.Consumer(p.second)
	p.delivered = min(p.possible, capacity-p.queue+wanted)
	share := 1.0
	if p.possible > 0 {
		share = p.delivered / p.possible
	}
	p.made, p.worked = p.made+speed*share, p.worked+share
	p.queue += p.delivered
	if wanted <= 0 {
		p.queue = min(p.queue, capacity)
		return 0
	}
	consumed := min(wanted, p.queue)
	p.queue -= consumed
	return p.consumer.take(consumed, consumed/wanted)
}

// take counts a second of the consumer, and returns the part of it in which it waited.
func (c *consumer) take(consumed, busy float64) float64 {
	steps := math.Floor(c.consumed / miniBatch)
	c.consumed, c.busy, c.starved = c.consumed+consumed, c.busy+busy, c.starved+1-busy
	if math.Floor(c.consumed/miniBatch) > steps {
		c.samples, c.samplesBusy = c.consumed, c.busy
	}
	return 1 - busy
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
				one.madeBefore, one.workedBefore, one.since = p.made, p.worked, p.second
			}
		}
	}
}
