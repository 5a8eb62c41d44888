// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package brain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
)

const (
	// minJobs is how many similar jobs are evidence.
	minJobs = 3
	// halfAge is the age, and halfRank the number of newer jobs, that halve the weight of a job.
	halfAge, halfRank = 14 * 24 * time.Hour, 16
	// maxAge is the age from which a job is ignored.
	maxAge = 90 * 24 * time.Hour
	// high and middle are the quantiles of the peaks. The high one counts at most maxSpread times the middle one, so that
	// a few jobs that used far more move a request no further.
	high, middle, maxSpread = 0.95, 0.5, 2
	// margin is what a replica requests beyond that, as a share of it: so much that jobs whose runs differ by 3 % start
	// within 15 % of their peak.
	margin = 0.07
	// killedFactor is how much more than it had a replica needed that was killed out of memory, as the Vertical Pod
	// Autoscaler assumes.
	killedFactor = 1.2
	// maxNamed bounds the jobs that a reason names.
	maxNamed = 5
)

// value is an amount that one job needed, or a speed that it had.
type value struct {
	amount, weight float64
}

// quantile returns the least amount below or at which a share of the weight is.
func quantile(values []value, share float64) float64 {
	sorted := slices.SortedFunc(slices.Values(values), func(a, b value) int { return cmp.Compare(a.amount, b.amount) })
	total := 0.0
	for _, one := range sorted {
		total += one.weight
	}
	sum, last := 0.0, 0.0
	for _, one := range sorted {
		sum, last = sum+one.weight, one.amount
		if sum >= share*total {
			break
		}
	}
	return last
}

// need returns what a replica should request by the peaks of similar jobs; 0 if they are too few.
func need(values []value, grain int64) int64 {
	if len(values) < minJobs {
		return 0
	}
	peak := min(quantile(values, high), maxSpread*quantile(values, middle))
	return int64(math.Ceil(min(peak*(1+margin), math.MaxInt64/4)/float64(grain))) * grain
}

// evidence is what similar jobs used, of one task.
type evidence struct {
	cpu, memory []value
}

// memory is what the past says of a job.
type memory struct {
	tasks map[string]*evidence
	// jobs are the names of those that are similar, the newest first, and distance is their mean distance.
	jobs     []string
	distance float64
	// speeds are those that they had, by the number of workers.
	speeds map[int32][]value
	// obstacle says why nothing is known.
	obstacle string
}

// recall compares the finished jobs with a job. Ages count until the job was created.
func recall(past Past) memory {
	known := memory{tasks: map[string]*evidence{}, speeds: map[int32][]value{}}
	own, err := shapesOf(&past.Job)
	if err != nil || past.Job.UID == "" || len(own) == 0 {
		known.obstacle = "the history has not recorded the job yet"
		return known
	}
	for i := range past.Finished[:min(len(past.Finished), MaxJobs)] {
		job := &past.Finished[i]
		age := max(past.Job.Created.Sub(job.Ended), 0)
		if job.UID == past.Job.UID || job.Namespace != past.Job.Namespace || !job.HasEnded() || age > maxAge {
			continue
		}
		theirs, err := shapesOf(job)
		if err != nil {
			continue
		}
		known.learn(job, own, theirs, decay(age, len(known.jobs)), past.Samples[job.UID])
	}
	if len(known.jobs) > 0 {
		known.distance /= float64(len(known.jobs))
	}
	return known
}

// decay returns the weight of a job by its age and the number of newer ones.
func decay(age time.Duration, newer int) float64 {
	return math.Exp2(-age.Hours()/halfAge.Hours() - float64(newer)/halfRank)
}

// learn adds what a similar job used.
func (m *memory) learn(job *record.Job, own, theirs map[string]shape, weight float64, samples []record.Sample) {
	total, hasPeaks := 0.0, false
	for name, task := range own {
		other, exists := theirs[name]
		if !exists {
			continue
		}
		similar := task.similarity(&other)
		total += similar
		if similar >= minSimilarity && m.add(job, name, weight*similar) {
			hasPeaks = true
		}
	}
	similar := total / float64(len(own))
	hasSpeeds := similar >= minSimilarity && m.addSpeeds(samples, weight*similar)
	if hasPeaks || hasSpeeds {
		m.jobs = append(m.jobs, job.Name)
		m.distance += 1 - similar
	}
}

// add adds the peaks of a task. Those of a job that failed for another reason than its memory, or whose end was not
// seen, may be too low.
func (m *memory) add(job *record.Job, task string, weight float64) bool {
	at := slices.IndexFunc(job.Peaks, func(p record.Peak) bool { return p.Task == task })
	if at < 0 {
		return false
	}
	peak := job.Peaks[at]
	isWhole := job.Phase == string(v2alpha1.JobSucceeded) || job.Deleted
	if !isWhole && peak.Killed <= 0 {
		return false
	}
	known := m.tasks[task]
	if known == nil {
		known = &evidence{}
		m.tasks[task] = known
	}
	memory := float64(peak.Memory)
	if peak.Killed >= peak.Memory {
		memory = killedFactor * float64(peak.Killed)
	}
	if memory > 0 {
		known.memory = append(known.memory, value{memory, weight})
	}
	if peak.CPU > 0 && isWhole {
		known.cpu = append(known.cpu, value{float64(peak.CPU), weight})
	}
	return memory > 0 || peak.CPU > 0
}

// source says from which jobs the past is, for the reason of a plan.
func (m *memory) source() string {
	named := strings.Join(m.jobs[:min(len(m.jobs), maxNamed)], ", ")
	if more := len(m.jobs) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d similar jobs at distance %.2f: %s", len(m.jobs), m.distance, named)
}
