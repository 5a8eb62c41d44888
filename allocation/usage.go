// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation/model"
)

// Usage is what a job has used so far, and what its restarts cost. It is persisted, so that a new
// leader does not take every job for new.
type Usage struct {
	// At is the time up to which the usage is accounted: for a job that waits, when it stopped. It
	// is zero for a job that never ran.
	At time.Time
	// Work is the work done, in seconds of one replica.
	Work float64
	// Useful is the work done in useful samples: goodput times seconds. Jobs of a group compare it.
	Useful float64
	// Expected is the work of the whole job in useful samples, by its first reports of progress; 0
	// if there is none. Reports that later contradict it do not count.
	Expected float64
	// Attained is the capacity-time had, in seconds of one unit of the scarcest resource.
	Attained float64
	// RunFor is how long the job has trained, in seconds, without its restarts.
	RunFor float64
	// Restarts is the number of restarts by changes of its placement.
	Restarts int
	// RestartCost is the measured duration of a restart; 0 if it is unknown.
	RestartCost time.Duration
	// Restarting is the part of a restart that is not over at At, in seconds.
	Restarting float64
}

// Group is the history of a group of similar jobs.
type Group struct {
	// Since is when the job was created that began the present observations, because it contradicted the ones before.
	// Jobs from before teach the group nothing. It is zero if none ever did.
	Since time.Time
	// Doubts are the jobs whose reports contradict the observations at present. They are not persisted: a new leader
	// counts their reports again.
	Doubts map[types.NamespacedName]Doubt
	// Observations are measured step times of the group's jobs, at most MaxObservations.
	Observations []model.Observation
	// Noise is the gradient noise that a job of the group reported first; nil if none has.
	Noise *model.Noise
	// Bounds are the batches that a job of the group reported last; nil if none has.
	Bounds *model.Bounds
	// MaxObserved is the largest number of replicas with an observation.
	MaxObserved int
	// Finished and Useful count the finished jobs, and sum their useful samples.
	Finished int
	Useful   float64
	// Totals is how right the totals are that the group's jobs report.
	Totals Totals
}

// Doubt is how long the reports of a job have contradicted the observations of its group.
type Doubt struct {
	// From and Last are the times of the first and the last of the reports, which are in a row.
	From, Last time.Time
	// Reports counts them.
	Reports int
}

// Totals is how right the totals of work are that finished jobs had reported.
type Totals struct {
	// Finished counts the jobs that had reported one. Wrong is the mean of how wrong these were: the natural
	// logarithm of the factor by which a total was too large or too small. Later jobs count more.
	Finished int
	Wrong    float64
}

const (
	// recentTotals is about how many of the last jobs count.
	recentTotals = 20
	// priorTotals is how many jobs of a group count as much as all others do.
	priorTotals = 5
)

// Finish adds a finished job.
func (t *Totals) Finish(usage *Usage) {
	if usage.Useful <= 0 || usage.Expected <= 0 {
		return
	}
	t.Finished++
	// The first job counts half: one wrong total may be an accident.
	t.Wrong += (math.Abs(math.Log(usage.Expected/usage.Useful)) - t.Wrong) / float64(min(t.Finished+1, recentTotals))
}

// Among returns what the totals of a group say beside those of all jobs: the fewer of the group have finished,
// the more the others count.
func (t *Totals) Among(all *Totals) Totals {
	own := float64(min(t.Finished, recentTotals))
	return Totals{Finished: all.Finished, Wrong: (own*t.Wrong + priorTotals*all.Wrong) / (own + priorTotals)}
}

// Finish adds a finished job to the history.
func (g *Group) Finish(usage *Usage) {
	if usage.Useful > 0 {
		g.Finished++
		g.Useful += usage.Useful
	}
	g.Totals.Finish(usage)
}

// MaxObservations bounds the observations of a job and of a group.
const MaxObservations = 64
