// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import "math"

// The plant at rest. A consumer of 1000 samples/s needs 50 producers of 20.
const (
	baseProducer = 20.0
	baseConsumer = 1000.0
	// baseBatch is the samples of a version of the policy. It has several short steps.
	baseBatch = 8000.0
	staleness = 4.0
	// startReplicas is how many producers a run begins with.
	startReplicas = 10
	// minReplicas and maxReplicas bound all rules.
	minReplicas, maxReplicas = 1, 400
	hour                     = 3600
	// Duration is the simulated time of a run in seconds.
	Duration = 4 * hour
)

// Scenario is a disturbance.
type Scenario struct {
	Name, Description string
	// Producer and Consumer are the true capacities at a second, in samples per second.
	Producer, Consumer func(second int) float64
	// ConsumerStart is when the consumer begins. Figures count from then on.
	ConsumerStart int
	// LoseAt is when half of the running producers vanish; 0 is never.
	LoseAt int
	// SlowStarts is the part of the producers that take five times as long to start.
	SlowStarts float64
	// LosesReports is the part of the reports that never arrive. As many arrive late, producers
	// restart every half hour, and clocks differ.
	LosesReports float64
	// Steps are the seconds of steps, after which overshoot and settling are measured.
	Steps []int
	// IsPeriodic reports whether the disturbance never ends, so that the rule always lags behind.
	IsPeriodic bool
}

// Scenarios returns all disturbances.
func Scenarios() []Scenario {
	all := []Scenario{
		{Name: "steady", Description: "nothing but noise"},
		{Name: "step change", Description: "the learner is twice as fast from 2 h on", Consumer: stepAt(2*hour, baseConsumer, 2*baseConsumer), Steps: []int{2 * hour}},
		{Name: "slow learner", Description: "the learner is half as fast from 2 h on", Consumer: stepAt(2*hour, baseConsumer, baseConsumer/2), Steps: []int{2 * hour}},
		{Name: "long episodes", Description: "episodes are twice as long for 90 min", Producer: func(s int) float64 {
			if s >= hour && s < hour+5400 {
				return baseProducer / 2
			}
			return baseProducer
		}, Steps: []int{hour, hour + 5400}},
		{Name: "longer responses", Description: "responses lengthen 2.5 times over 4 h", Producer: func(s int) float64 {
			return baseProducer / (1 + 1.5*float64(s)/Duration)
		}},
		{Name: "environment phases", Description: "episodes differ by 30 % in a sine of 1 h", Producer: func(s int) float64 {
			return baseProducer * (1 + 0.3*math.Sin(2*math.Pi*float64(s)/hour))
		}, IsPeriodic: true},
		{Name: "node loss", Description: "half of the collectors are lost at 2 h", LoseAt: 2 * hour, Steps: []int{2 * hour}},
		{Name: "late start", Description: "the learner starts 10 min late, every fourth collector five times as slowly", ConsumerStart: 600, SlowStarts: 0.25, Consumer: stepAt(600, 0, baseConsumer)},
		{Name: "noisy reports", Description: "20 % of the reports are lost, 20 % late, clocks differ, collectors restart", LosesReports: 0.2},
	}
	for i := range all {
		if all[i].Producer == nil {
			all[i].Producer = stepAt(0, baseProducer, baseProducer)
		}
		if all[i].Consumer == nil {
			all[i].Consumer = stepAt(0, baseConsumer, baseConsumer)
		}
	}
	return all
}

func stepAt(second int, before, after float64) func(int) float64 {
	return func(s int) float64 {
		if s < second {
			return before
		}
		return after
	}
}
