// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"math"

	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/allocation/model"
)

// Sia has the objective of Sia (Jayaram Subramanya et al., SOSP 2023), solved exactly.
type Sia struct{}

// Sia's published constants.
const (
	siaExponent = -0.5
	siaWaiting  = 1.1
	siaRestart  = 30.0
)

// Target implements Policy.
func (Sia) Target(job *Submission) int { return job.Application.FixedBatch }

// Place implements Policy.
func (Sia) Place(now int, jobs []*Job, cluster Cluster, previous map[string][]int) map[string][]int {
	options := make([][]goodput.Option, len(jobs))
	for i, job := range jobs {
		options[i] = siaOptions(now, job, cluster, len(previous[job.Name]))
	}
	decisions := make([]goodput.Decision, len(jobs))
	for i, chosen := range goodput.Choose(options, cluster.Nodes*cluster.GPUs) {
		decisions[i] = goodput.Decision{Option: chosen, Options: options[i], Weight: 1}
	}
	return pack(jobs, decisions, cluster, previous)
}

func siaOptions(now int, job *Job, cluster Cluster, current int) []goodput.Option {
	fitted := job.Model()
	limit := min(max(2*job.MaxObserved, 1), cluster.Nodes*cluster.GPUs, job.Application.Bounds.Max/job.Application.Bounds.MinAtomic)
	if job.Application.MaxReplicas > 0 {
		limit = job.Application.MaxReplicas
	}
	var counts []int
	var values []float64
	least := math.Inf(1)
	for k := 1; k <= limit; {
		value := float64(k)
		if fitted != nil {
			_, value = best(fitted, (k+cluster.GPUs-1)/cluster.GPUs, k)
		}
		if value > 0 {
			counts, values, least = append(counts, k), append(values, value), math.Min(least, value)
		}
		if k < cluster.GPUs {
			k *= 2
		} else {
			k += cluster.GPUs
		}
	}
	age := float64(job.Age(now))
	factor := 1.0
	if age >= siaRestart {
		factor = math.Max(age-float64(job.Restarts)*siaRestart, 0) / (age + siaRestart)
	}
	options := []goodput.Option{{}}
	for i, k := range counts {
		value := values[i] / least
		if k != current {
			value *= factor
		}
		cost := math.Min(math.Round(math.Pow(math.Max(value, 1e-9), siaExponent)*100)/100, 3000)
		options = append(options, goodput.Option{Replicas: k, Cost: k, Value: siaWaiting - cost})
	}
	return options
}

func best(g *model.Goodput, nodes, replicas int) (model.Config, float64) {
	return g.Best(nodes, replicas)
}
