// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package brain

import (
	"maps"
	"math"
	"slices"

	"opendilab.org/di-orchestrator/history/record"
)

const (
	// minReports is how many reports show the speed of a number of workers.
	minReports = 3
	// maxSpeed and maxWorkers bound what a report may say.
	maxSpeed, maxWorkers = 1e15, 100_000
	// blurred is how far from a whole number the mean of a span may be, if the number of workers did not change in it.
	blurred = 0.01
)

// addSpeeds adds the speeds that a job reported, the median for each number of workers.
func (m *memory) addSpeeds(samples []record.Sample, weight float64) bool {
	byWorkers := map[int32][]value{}
	for _, sample := range samples {
		if workers, speed := speedOf(sample.Values); workers > 0 {
			byWorkers[workers] = append(byWorkers[workers], value{speed, 1})
		}
	}
	added := false
	for workers, speeds := range byWorkers {
		if len(speeds) >= minReports {
			m.speeds[workers] = append(m.speeds[workers], value{quantile(speeds, middle), weight})
			added = true
		}
	}
	return added
}

// speedOf returns the number of workers and the speed of a report; 0 if it has none.
func speedOf(values map[string]record.Mean) (int32, float64) {
	replicas, speed := mean(values, "throughput.replicas"), mean(values, "throughput.per_second")
	if seconds := mean(values, "steps.seconds"); seconds > 0 {
		replicas = mean(values, "steps.replicas")
		speed = replicas * mean(values, "steps.samples") / seconds
	}
	whole := math.Round(replicas)
	if !(speed > 0 && speed < maxSpeed && whole >= 1 && whole <= maxWorkers && math.Abs(replicas-whole) < blurred) {
		return 0, 0
	}
	return int32(whole), speed
}

func mean(values map[string]record.Mean, name string) float64 {
	if one := values[name]; one.Count > 0 {
		return one.Value()
	}
	return 0
}

// workers returns the measured number of workers from which on an added worker has less than a share of the speed
// of the others; 0 if fewer than two numbers were measured.
func (m *memory) workers(share float64) int32 {
	measured := slices.Sorted(maps.Keys(m.speeds))
	if len(measured) < 2 {
		return 0
	}
	best := measured[0]
	for _, next := range measured[1:] {
		was, is := quantile(m.speeds[best], middle), quantile(m.speeds[next], middle)
		if (is-was)/float64(next-best) < share*was/float64(best) {
			break
		}
		best = next
	}
	return best
}
