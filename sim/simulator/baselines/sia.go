// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"math"

	"opendilab.org/di-orchestrator/sim/simulator"
)

// Sia has the objective of Sia (Jayaram Subramanya et al., SOSP 2023), solved exactly.
type Sia struct{}

// The published constants of Sia.
const (
	siaExponent = -0.5
	// siaWaiting is the cost of a job that waits.
	siaWaiting = 1.1
	siaRestart = 30.0
	siaMost    = 3000
)

// Target implements simulator.Policy.
func (Sia) Target(job *simulator.Submission) int { return job.Application.FixedBatch }

// Place implements simulator.Policy.
func (Sia) Place(now int, jobs []*simulator.Job, cluster simulator.Cluster, previous map[string][]int) map[string][]int {
	options := make([][]option, len(jobs))
	for i, job := range jobs {
		options[i] = siaOptions(now, job, cluster, len(previous[job.Name]))
	}
	counts := make([]int, len(jobs))
	for i, chosen := range choose(options, cluster.Nodes*cluster.GPUs) {
		counts[i] = options[i][chosen].replicas
	}
	return pack(jobs, counts, cluster, previous)
}

// siaOptions returns what a job may get, to wait first. A value is how much less a configuration
// costs than waiting.
func siaOptions(now int, job *simulator.Job, cluster simulator.Cluster, current int) []option {
	counts, values := siaGoodputs(job, cluster)
	least := math.Inf(1)
	for _, value := range values {
		least = math.Min(least, value)
	}
	age, factor := float64(job.Age(now)), 1.0
	if age >= siaRestart {
		factor = math.Max(age-float64(job.Restarts)*siaRestart, 0) / (age + siaRestart)
	}
	options := []option{{}}
	for i, count := range counts {
		value := values[i] / least
		if count != current {
			value *= factor
		}
		cost := math.Min(math.Round(math.Pow(math.Max(value, 1e-9), siaExponent)*100)/100, siaMost)
		options = append(options, option{replicas: count, value: siaWaiting - cost})
	}
	return options
}

// siaGoodputs returns the goodput of each configuration: powers of two within a node, then whole nodes.
func siaGoodputs(job *simulator.Job, cluster simulator.Cluster) (counts []int, values []float64) {
	bounds := &job.Application.Bounds
	limit := min(max(2*job.MaxObserved, 1), cluster.Nodes*cluster.GPUs, bounds.Max/bounds.MinAtomic)
	if job.Application.MaxReplicas > 0 {
		limit = job.Application.MaxReplicas
	}
	fitted := job.Model()
	for count := 1; count <= limit; {
		value := float64(count)
		if fitted != nil {
			_, value = fitted.Best((count+cluster.GPUs-1)/cluster.GPUs, count)
		}
		if value > 0 {
			counts, values = append(counts, count), append(values, value)
		}
		if count < cluster.GPUs {
			count *= 2
		} else {
			count += cluster.GPUs
		}
	}
	return counts, values
}

// option is a number of replicas that a job may get, and its value.
type option struct {
	replicas int
	value    float64
}

// choose returns the index of an option for each job so that the sum of the values is the greatest
// within the capacity, by dynamic programming. Of equal values the earlier option is chosen.
func choose(options [][]option, capacity int) []int {
	best, next := make([]float64, capacity+1), make([]float64, capacity+1)
	choices := make([][]int, len(options))
	for j, of := range options {
		choices[j] = make([]int, capacity+1)
		for x := range next {
			next[x] = math.Inf(-1)
			for i := range of {
				if of[i].replicas > x {
					continue
				}
				if value := best[x-of[i].replicas] + of[i].value; value > next[x]+1e-15 {
					next[x], choices[j][x] = value, i
				}
			}
		}
		best, next = next, best
	}
	chosen, left := make([]int, len(options)), capacity
	for j := len(options) - 1; j >= 0; j-- {
		chosen[j] = choices[j][left]
		left -= options[j][chosen[j]].replicas
	}
	return chosen
}
