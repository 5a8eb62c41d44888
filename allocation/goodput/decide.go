// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package goodput decides how many replicas each job gets, so that jobs complete
// early on average: it gives capacity to the jobs that make most of it.
package goodput

import (
	"cmp"
	"math"
	"slices"
	"time"
)

var GuessDrain, Cap = 20000.0, 0.0

// Settings are the constants of the policy. None is fitted to a workload: a factor of
// two changes mean completion times by some percent.
type Settings struct {
	// Drain is over how long a backlog drains, for jobs whose remaining work is not
	// known, and for those that report it.
	Drain, DrainKnown time.Duration
	// Large is the capacity-time after which jobs are served first come first served
	// (the threshold of Tiresias).
	Large time.Duration
	// Share is the exponent of the weights among large jobs.
	Share float64
	// Horizon is over how long a change must pay for its restart, Settled the least of it.
	Settled, Horizon time.Duration
}

// DefaultSettings returns the settings that the documentation explains.
func DefaultSettings() Settings {
	return Settings{
		Drain: 10000 * time.Second, DrainKnown: 3000 * time.Second, Large: 16 * time.Hour, Share: 0.4,
		Settled: 2 * time.Minute, Horizon: 10 * time.Minute,
	}
}

// Job is what the policy knows of a job.
type Job struct {
	// Points are the replicas that it may get, without 0, ascending.
	Points []Point
	// Current is the replicas that it has; 0 while it waits.
	Current int
	// Speed is the speed that it has with them; 0 while it waits.
	Speed float64
	// HasRun reports whether it ever had replicas.
	HasRun bool
	// Work is the work that it has done, Remaining what it reports to be left, in seconds
	// of one replica; Remaining is NaN where it reports nothing.
	Work, Remaining float64
	Guess           bool
	// Attained is the capacity-time that it has had, RunFor how long it has run since the
	// last restart, RestartCost how long a restart takes, in seconds.
	Attained, RunFor, RestartCost float64
	// Submitted orders jobs: the least is the oldest.
	Submitted float64
}

// Decision is what a job gets, and why.
type Decision struct {
	// Option is the index among Options; the first is to wait.
	Option  int
	Options []Option
	// Weight is what a unit of the job's speed is worth.
	Weight float64
}

// Replicas returns the replicas that the job gets.
func (d *Decision) Replicas() int { return d.Options[d.Option].Replicas }

// Decide returns a decision for each job within the capacity, and the price of it.
func Decide(jobs []Job, capacity int, settings *Settings) ([]Decision, float64) {
	points := make([][]Point, len(jobs))
	for j := range jobs {
		points[j] = jobs[j].Points
	}
	price := clearingPrice(points, capacity)
	weights := weigh(jobs, price, settings)
	decisions, options := make([]Decision, len(jobs)), make([][]Option, len(jobs))
	for j := range jobs {
		options[j] = jobs[j].options(weights[j], settings)
		decisions[j] = Decision{Options: options[j], Weight: weights[j]}
	}
	for j, chosen := range Choose(options, capacity) {
		decisions[j].Option = chosen
	}
	return decisions, price
}

// weigh returns what a unit of each job's work is worth: its cost at the price that
// is expected when the job ends. Backlogs drain, so the price falls meanwhile.
func weigh(jobs []Job, price float64, settings *Settings) []float64 {
	weights := make([]float64, len(jobs))
	var large []int
	for j := range jobs {
		job := &jobs[j]
		left, drain := job.Work, settings.Drain.Seconds()
		if !math.IsNaN(job.Remaining) {
			left, drain = job.Remaining, settings.DrainKnown.Seconds()
			if job.Guess {
				drain = GuessDrain
			}
		}
		stay := left / math.Max(job.Speed, 1)
		weights[j], _ = unitCost(job.Points, price/math.Sqrt(1+stay/drain))
		if job.Attained >= settings.Large.Seconds() {
			large = append(large, j)
		}
	}
	slices.SortStableFunc(large, func(a, b int) int { return cmp.Compare(jobs[b].Submitted, jobs[a].Submitted) })
	for i, share := range shares(len(large), settings.Share) {
		weights[large[i]] *= share
	}
	return weights
}

// shares returns the weights of jobs that look alike, from the youngest to the oldest:
// those of heSRPT (Berg, Vesilo and Harchol-Balter, arXiv 1903.09346), of mean 1.
func shares(count int, exponent float64) []float64 {
	q := 1 / (1 - exponent)
	all, sum := make([]float64, count), 0.0
	for i := range all {
		n := float64(i + 1)
		all[i] = math.Pow(math.Pow(n, q)-math.Pow(n-1, q), 1/q)
		sum += all[i]
	}
	for i := range all {
		all[i] *= float64(count) / sum
	}
	return all
}

// options returns what the job may get: to wait, and each point. What changes it must
// pay for the restart within the horizon.
func (j *Job) options(weight float64, settings *Settings) []Option {
	horizon := math.Min(settings.Settled.Seconds()+j.RunFor/2, settings.Horizon.Seconds())
	if Cap > 0 && !math.IsNaN(j.Remaining) {
		horizon = math.Min(horizon, Cap*j.Remaining/math.Max(j.Speed, 1))
	}
	factor := horizon / (horizon + j.RestartCost)
	options := []Option{{}}
	for _, point := range j.Points {
		value := weight * point.Speed
		if j.HasRun && point.Replicas != j.Current {
			value *= factor
		}
		options = append(options, Option{Replicas: point.Replicas, Cost: point.Cost, Value: value})
	}
	return options
}
