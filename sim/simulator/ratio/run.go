// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"

	rule "opendilab.org/di-orchestrator/autoscale/ratio"
)

// Options are what runs have in common.
type Options struct {
	// Noise is the standard deviation of the producers' speed.
	Noise float64
	// NoiseSeconds is the correlation time of the noise.
	NoiseSeconds float64
	// MinDelay and MaxDelay bound start delays, in seconds.
	MinDelay, MaxDelay float64
	// ProducerError and ConsumerError are the factors by which the rule's capacities are wrong.
	ProducerError, ConsumerError float64
	// CountsWaiting is whether the consumer counts as busy the time for which it waits for samples.
	CountsWaiting bool
	// EvaluationSeconds is for how long the consumer evaluates the policy every ten minutes. It takes no samples
	// then, and counts the time as busy.
	EvaluationSeconds int
	// StepSeconds and EpisodeSeconds are how long a step of the consumer and an episode of a producer take.
	StepSeconds, EpisodeSeconds int
	Sender                      Sender
	Rule                        rule.Settings
	Estimator                   rule.EstimatorSettings
}

// DefaultOptions returns the options of the figures.
func DefaultOptions() Options {
	return Options{
		Noise: 0.07, NoiseSeconds: 10, MinDelay: 30, MaxDelay: 120, ProducerError: 1, ConsumerError: 1,
		StepSeconds: 1, EpisodeSeconds: 1, Sender: Timer,
		Rule: rule.Defaults(), Estimator: rule.DefaultEstimator(),
	}
}

// step returns the samples of a step.
func (o *Options) step() float64 { return baseConsumer * float64(o.StepSeconds) }

// batch returns the samples of a version of the policy: of at least one step.
func (o *Options) batch() float64 { return max(baseBatch, o.step()) }

// capacity returns what the bound on staleness lets wait.
func (o *Options) capacity() float64 { return (staleness + 1) * o.batch() }

// Policies returns the names of the rules, the operator's first.
func Policies() []string {
	return []string{"ratio rule", "HPA on CPU 80 %", "HPA on ideal ratio", "KEDA-like on room", "static 53"}
}

// TrueRatio names the size that is right at each moment, which no rule knows. It shows what the start of producers alone
// costs: only a rule that knows the future starves the consumer less.
const TrueRatio = "true ratio"

// sizerOf returns a rule by its name.
func sizerOf(policy string, options Options) sizer {
	switch policy {
	case "HPA on CPU 80 %":
		return newCPU()
	case "HPA on ideal ratio":
		o := newOperator(options)
		return watched{newIdeal(o), o}
	case "KEDA-like on room":
		return newQueue(&options)
	case "static 53":
		return fixed(53)
	case TrueRatio:
		return right{}
	default:
		return newOperator(options)
	}
}

// Figures are the figures of one or more runs.
type Figures struct {
	// Starved is the part of the time that the consumer waits.
	Starved float64 `json:"starved"`
	// Cost is the producers' hours over those of the ideal size.
	Cost float64 `json:"cost"`
	// Staleness is the mean age of consumed samples, in versions.
	Staleness float64 `json:"staleness"`
	// Resizes is the number of resizes per hour.
	Resizes float64 `json:"resizesPerHour"`
	// Overshoot is the part by which the size goes beyond the ideal one in the half hour after a
	// step of the ideal size, and Settling how long until it stays within 10 % for five minutes, in seconds. Both are
	// the worst of a run's steps; a run without a step has none.
	Overshoot float64 `json:"overshoot"`
	Settling  float64 `json:"settlingSeconds"`
}

// Point is the state of a run at a time.
type Point struct {
	Second             int
	Requested, Running int
	Ideal, Queue       float64
}

// Run simulates a scenario under a policy, and returns its figures and one point each 30 s.
func Run(scenario *Scenario, policy string, options Options, seed uint64) (Figures, []Point) {
	p := newPlant(scenario, options, seed)
	rule := sizerOf(policy, options)
	r := recorder{scenario: scenario}
	for p.second = 0; p.second < Duration; p.second++ {
		starved := p.step()
		before := len(p.producers)
		p.resize(rule.size(p))
		r.record(p, starved, before != len(p.producers))
	}
	return r.figures(), r.points
}

// recorder sums up a run.
type recorder struct {
	scenario                             *Scenario
	starved, requested, ideal, age, used float64
	resizes                              int
	points                               []Point
	// all has each second.
	all []Point
}

func (r *recorder) record(p *plant, starved float64, isResized bool) {
	point := Point{p.second, len(p.producers), p.running(), p.ideal(), p.queue}
	r.all = append(r.all, point)
	if p.second%30 == 0 {
		r.points = append(r.points, point)
	}
	if isResized {
		r.resizes++
	}
	if p.second < r.scenario.ConsumerStart {
		return
	}
	r.starved += starved
	r.requested += float64(len(p.producers))
	r.ideal += p.ideal()
	consumed := (1 - starved) * p.scenario.Consumer(p.second)
	r.age, r.used = r.age+p.queue/p.options.batch()*consumed, r.used+consumed
}

func (r *recorder) figures() Figures {
	seconds := float64(Duration - r.scenario.ConsumerStart)
	f := Figures{
		Starved: r.starved / seconds, Cost: r.requested / r.ideal, Staleness: r.age / r.used,
		Resizes: float64(r.resizes) / (float64(Duration) / hour),
	}
	for _, at := range r.scenario.Steps {
		overshoot, settling := r.response(at)
		f.Overshoot, f.Settling = max(f.Overshoot, overshoot), max(f.Settling, settling)
	}
	return f
}

// response returns overshoot and settling time of a step.
func (r *recorder) response(at int) (overshoot, settling float64) {
	before, after := r.all[at-1].Ideal, r.all[at].Ideal
	within := 0
	for i, point := range r.all[at:min(at+1800, len(r.all))] {
		switch beyond := float64(point.Requested)/after - 1; {
		case after > before:
			overshoot = max(overshoot, beyond)
		case after < before:
			overshoot = max(overshoot, -beyond)
		}
		if within < 300 {
			if math.Abs(float64(point.Running)-after) > 0.1*after {
				within, settling = 0, float64(i+1)
			} else {
				within++
			}
		}
	}
	return overshoot, settling
}

// Seeds are the seeds of the figures.
func Seeds() []uint64 { return []uint64{1, 2, 3, 4, 5} }

// Mean returns the mean figures of runs with some seeds.
func Mean(scenario *Scenario, policy string, options Options, seeds []uint64) Figures {
	var sum Figures
	n := float64(len(seeds))
	for _, seed := range seeds {
		f, _ := Run(scenario, policy, options, seed)
		sum.Starved += f.Starved / n
		sum.Cost += f.Cost / n
		sum.Staleness += f.Staleness / n
		sum.Resizes += f.Resizes / n
		sum.Overshoot += f.Overshoot / n
		sum.Settling += f.Settling / n
	}
	return sum
}
