// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"cmp"
	"math"
	"slices"

	"opendilab.org/di-orchestrator/sim/simulator"
)

// Optimus (Peng et al., EuroSys 2018) gives GPUs one by one to the job whose remaining
// time falls most. As in the artifact it knows true step times and remaining steps.
type Optimus struct{}

// Target implements simulator.Policy.
func (Optimus) Target(job *simulator.Submission) int { return job.Batch }

// Place implements simulator.Policy.
func (Optimus) Place(_ int, jobs []*simulator.Job, cluster simulator.Cluster, previous map[string][]int) map[string][]int {
	counts := share(jobs, cluster)
	placed := map[string][]int{}
	for i, job := range jobs {
		if where := previous[job.Name]; len(where) > 0 && len(where) == counts[i] {
			placed[job.Name] = where
		}
	}
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(counts[a], counts[b]) })
	room := free(cluster.Nodes, cluster.GPUs, placed)
	for _, i := range order {
		if counts[i] > 0 && len(placed[jobs[i].Name]) == 0 {
			placed[jobs[i].Name] = spread(room, counts[i])
		}
	}
	return placed
}

// share returns the GPUs of each job.
func share(jobs []*simulator.Job, cluster simulator.Cluster) []int {
	left := cluster.Nodes * cluster.GPUs
	counts, gains := make([]int, len(jobs)), make([]float64, len(jobs))
	gain := func(i int) float64 {
		job := jobs[i]
		most := job.Batch / job.Application.Bounds.MinAtomic
		if job.Application.MaxReplicas > 0 {
			most = job.Application.MaxReplicas
		}
		if counts[i]+1 > most || left < 1 {
			return 0
		}
		return (stepTime(job, counts[i], cluster.GPUs) - stepTime(job, counts[i]+1, cluster.GPUs)) * simulator.Oracle(job).RemainingSteps()
	}
	for i := range jobs {
		if left >= 1 {
			counts[i], left = 1, left-1
			gains[i] = gain(i)
		}
	}
	for left > 0 {
		best := 0
		for i := range gains {
			if gains[i] > gains[best] {
				best = i
			}
		}
		if gains[best] <= 0 {
			break
		}
		counts[best]++
		// The artifact looks at what is left before it takes this one.
		gains[best] = gain(best)
		left--
	}
	return counts
}

// stepTime returns the true time of a step on nodes that the job has for itself.
func stepTime(job *simulator.Job, replicas, gpus int) float64 {
	bounds := &job.Application.Bounds
	var placement []int
	for left := replicas; left > 0; left -= gpus {
		placement = append(placement, min(left, gpus))
	}
	local := math.Ceil(float64(job.Batch)/float64(replicas) - 1e-8)
	accumulation := int(math.Ceil(local/float64(bounds.MaxAtomic)-1e-8)) - 1
	if replicas == 1 {
		accumulation = max(1, accumulation)
	}
	atomic := int(math.Ceil(local/float64(accumulation+1) - 1e-8))
	atomic = min(atomic, bounds.Max/(replicas*(accumulation+1)))
	step, sync := job.Application.Times(placement, atomic)
	return step + (step-sync)*float64(accumulation)
}
