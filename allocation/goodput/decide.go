// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Job is what the choice of replicas depends on.
type Job struct {
	// Points are the replicas that it may get, ascending.
	Points []Point
	// Current is the replicas that it can keep; negative while it waits. Kind is the type of their devices.
	Current, Kind int
	// Speed is the speed that it has with them; 0 while it waits.
	Speed float64
	// HasRun reports whether it ever had replicas.
	HasRun bool
	// Work is the work that it has done, Remaining the work that is left, in seconds of one
	// replica. Remaining is NaN if it is unknown; IsGuess says that it is the group's mean.
	Work, Remaining float64
	IsGuess         bool
	// Attained is the capacity-time that it has had, RunFor how long it has trained, Age how
	// long ago it was submitted, RestartCost how long a restart takes, in seconds.
	Attained, RunFor, Age, RestartCost float64
	// ResizesLive reports whether the current replicas continue while the job gets more or fewer.
	ResizesLive bool
	// Submitted orders jobs: the least is the oldest.
	Submitted time.Time
	// Starves is how long it has waited in all by how long it may wait: it starves beyond 1.
	Starves float64
	// Stays is set for a job whose tenant gives back what it borrowed: it shrinks before any such job stops.
	Stays bool
}

// Decision is what a job gets, and why.
type Decision struct {
	// Option is the index among Options; the first is to wait.
	Option  int
	Options []Option
	// Weight is what a unit of the job's speed is worth.
	Weight float64
}

// Chosen returns the option that the job gets.
func (d *Decision) Chosen() *Option { return &d.Options[d.Option] }

// Decide returns a decision for each job within the capacity of each type of devices.
func Decide(jobs []Job, capacities []int, settings *Settings) []Decision {
	points := make([][]Point, len(jobs))
	for j := range jobs {
		points[j] = jobs[j].Points
	}
	prices := clearingPrices(points, capacities)
	weights := weigh(jobs, prices, settings)
	decisions, options := make([]Decision, len(jobs)), make([][]Option, len(jobs))
	for j := range jobs {
		decisions[j] = Decision{Options: jobs[j].options(weights[j], settings), Weight: weights[j]}
		options[j] = decisions[j].Options
	}
	for j, chosen := range Choose(protect(jobs, options), capacities) {
		decisions[j].Option = chosen
	}
	return decisions
}

// weigh returns what a unit of each job's work is worth: its cost at the prices that
// are expected when the job ends. Backlogs drain, so the prices fall meanwhile.
func weigh(jobs []Job, prices []float64, settings *Settings) []float64 {
	weights := make([]float64, len(jobs))
	var large []int
	for j := range jobs {
		job := &jobs[j]
		left, drain := job.Work, settings.Drain
		switch {
		case math.IsNaN(job.Remaining):
		case job.IsGuess:
			left, drain = job.Remaining, settings.DrainGuessed
		default:
			left, drain = job.Remaining, settings.DrainReported
		}
		stay := left / math.Max(job.Speed, 1)
		weights[j], _ = unitCost(job.Points, prices, 1/math.Sqrt(1+stay/drain.Seconds()))
		weights[j] *= 1 + settings.Fairness*job.Age/math.Max(job.Work, settings.StarveAfter.Seconds())
		if job.Attained >= settings.Large.Seconds() {
			large = append(large, j)
		}
	}
	slices.SortStableFunc(large, func(a, b int) int { return jobs[b].Submitted.Compare(jobs[a].Submitted) })
	for i, share := range servedOldest(len(large), settings.Share) {
		weights[large[i]] *= share
	}
	return weights
}

// servedOldest returns the weights of jobs that look alike, from the youngest to the oldest:
// those of heSRPT (Berg, Vesilo and Harchol-Balter, arXiv 1903.09346), of mean 1.
func servedOldest(count int, exponent float64) []float64 {
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
// pay for the restart. A live resize costs what only the added replicas would have done meanwhile.
func (j *Job) options(weight float64, settings *Settings) []Option {
	options := make([]Option, 1, len(j.Points)+1)
	options[0].Replicas = waiting
	for _, point := range j.Points {
		value := weight * point.Speed
		if j.HasRun && (point.Replicas != j.Current || point.Kind != j.Kind) {
			if part := j.payback(&point, settings); j.ResizesLive && point.Kind == j.Kind {
				value -= weight * math.Max(point.Speed-j.Speed, 0) * (1 - part)
			} else {
				value *= part
			}
		}
		options = append(options, Option{Replicas: point.Replicas, Kind: point.Kind, Cost: point.Cost, Value: value})
	}
	return options
}

// payback returns the part of a changed job's time that its restart leaves, up to the horizon or its
// end. With the work R, the speed s and the restart D the job ends within R/s + D.
func (j *Job) payback(point *Point, settings *Settings) float64 {
	horizon := math.Min(settings.Settled.Seconds()+j.RunFor/2, settings.Horizon.Seconds())
	if !math.IsNaN(j.Remaining) && !j.IsGuess {
		horizon = math.Min(horizon, math.Max(j.Remaining/point.Speed, 1))
	}
	return horizon / (horizon + j.RestartCost)
}

// protection is more than all values together, and leaves enough digits for them.
const protection = 1e4

// protect returns the options with what keeps jobs from starving: to place a job that
// starves is worth more than any replicas of others. So it gets its minimum before any job
// gets more than its minimum. Among such jobs one that starves for long counts twice, or a
// job of many replicas would wait as long as small ones come. A job that stays counts as one that starves.
func protect(jobs []Job, options [][]Option) [][]Option {
	isProtected := func(j Job) bool { return starvation(j.Starves) > 0 || j.Stays }
	if !slices.ContainsFunc(jobs, isProtected) {
		return options
	}
	protected := make([][]Option, len(options))
	for j := range options {
		protected[j] = options[j]
		if !isProtected(jobs[j]) {
			continue
		}
		least := math.MaxInt
		for _, option := range options[j][1:] {
			least = min(least, option.Cost)
		}
		bonus := protection * float64(max(least, 1))
		if starvation(jobs[j].Starves) > 1 {
			bonus *= 2
		}
		protected[j] = slices.Clone(options[j])
		for i := range protected[j][1:] {
			protected[j][i+1].Value += bonus
		}
	}
	return protected
}

// starvesLong is how many times as long as it should a job waits until others are stopped.
const starvesLong = 4

// starvation returns 0 for a job that does not starve, 1 for one that does, and 2 for one that starves for long.
func starvation(starves float64) int {
	switch {
	case starves > starvesLong:
		return 2
	case starves > 1:
		return 1
	}
	return 0
}

// byValue returns the indices of options of at least some replicas, the most valuable first.
func (d *Decision) byValue() []int {
	var all []int
	for i := 1; i < len(d.Options); i++ {
		all = append(all, i)
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(d.Options[b].Value, d.Options[a].Value) })
	return all
}

// descending returns the indices of options of fewer replicas than the chosen one but at
// least some, from the most replicas on; those on other devices come last.
func (d *Decision) descending() []int {
	var all []int
	chosen := d.Chosen()
	isOther := func(i int) int {
		if d.Options[i].Kind == chosen.Kind {
			return 0
		}
		return 1
	}
	for i := 1; i < len(d.Options); i++ {
		if d.Options[i].Replicas < chosen.Replicas || d.Options[i].Kind != chosen.Kind && d.Options[i].Value < chosen.Value {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Or(cmp.Compare(isOther(a), isOther(b)), cmp.Compare(d.Options[b].Replicas, d.Options[a].Replicas), cmp.Compare(a, b))
	})
	return all
}
