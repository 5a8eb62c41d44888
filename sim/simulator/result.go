// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"slices"
	"time"
)

// Outcome is the result of a job.
type Outcome struct {
	Name        string `json:"name"`
	Application string `json:"application"`
	Tenant      string `json:"tenant,omitempty"`
	// Submitted and Completed are in seconds since the start of the workload.
	Submitted int `json:"submitted"`
	Completed int `json:"completed"`
	// Restarts counts placements after the first.
	Restarts int `json:"restarts"`
	// GPUSeconds is the GPU time that it has had.
	GPUSeconds float64 `json:"gpuSeconds"`
	// Starved is for how many seconds it had no GPU while another job had more than one replica.
	Starved int `json:"starved"`
}

// JCT returns the job completion time in seconds.
func (o *Outcome) JCT() int { return o.Completed - o.Submitted }

// Change is a change of the GPUs of a job.
type Change struct {
	// At is the time in seconds, and Job the index of the job in the workload.
	At   int `json:"at"`
	Job  int `json:"job"`
	GPUs int `json:"gpus"`
}

// Result is the result of a workload.
type Result struct {
	Jobs []Outcome `json:"jobs"`
	// Rounds is how long the policy took for each round.
	Rounds []time.Duration `json:"rounds"`
	// Changes are ordered by round.
	Changes []Change `json:"changes"`
	// Capacity is the number of GPUs of the cluster.
	Capacity int `json:"capacity"`
}

func (r *Result) record(at, job, gpus int) {
	r.Changes = append(r.Changes, Change{At: at, Job: job, GPUs: gpus})
}

// Summary is what the results of some workloads have in common. Times are in seconds.
type Summary struct {
	Jobs int     `json:"jobs"`
	Mean float64 `json:"mean"`
	P50  int     `json:"p50"`
	P99  int     `json:"p99"`
	// Makespan is the mean time from the first submission to the last completion.
	Makespan float64       `json:"makespan"`
	Restarts float64       `json:"restartsPerJob"`
	GPUHours float64       `json:"gpuHours"`
	RoundP50 time.Duration `json:"roundP50"`
	RoundP99 time.Duration `json:"roundP99"`
}

// Summarize pools the jobs of results. The mean is that of the workloads' means.
func Summarize(results ...*Result) Summary {
	var jcts []int
	var rounds []time.Duration
	s := Summary{}
	for _, result := range results {
		sum, first, last := 0, result.Jobs[0].Submitted, 0
		for i := range result.Jobs {
			job := &result.Jobs[i]
			jcts, sum = append(jcts, job.JCT()), sum+job.JCT()
			first, last = min(first, job.Submitted), max(last, job.Completed)
			s.Restarts += float64(job.Restarts)
			s.GPUHours += job.GPUSeconds / 3600
		}
		rounds = append(rounds, result.Rounds...)
		s.Mean += float64(sum) / float64(len(result.Jobs)) / float64(len(results))
		s.Makespan += float64(last-first) / float64(len(results))
	}
	s.Jobs = len(jcts)
	s.Restarts /= float64(s.Jobs)
	s.P50, s.P99 = Percentile(jcts, 50), Percentile(jcts, 99)
	s.RoundP50, s.RoundP99 = Percentile(rounds, 50), Percentile(rounds, 99)
	return s
}

// Percentile returns the value below which that percentage of the values is.
func Percentile[T cmp.Ordered](values []T, percent int) T {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		var none T
		return none
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}
