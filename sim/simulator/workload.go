// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"opendilab.org/di-orchestrator/allocation/shares"
)

// maxTime bounds submissions, in seconds: a year.
const maxTime = 366 * 86400

// Submission is a job of a workload.
type Submission struct {
	Name string
	// Time is when it is submitted, in seconds.
	Time        int
	Application *Application
	// Tenant is the job's tenant; empty for one that all such jobs have.
	Tenant string
	// Replicas and Batch are what a careful user asks for.
	Replicas, Batch int
	// Epochs is after how many epochs the job stops; 0 stands for all of its application.
	Epochs int
	// Declared is the total that the job reports, relative to the true total of all epochs; 0
	// stands for 1.
	Declared float64
}

// LoadWorkload reads a workload: name, time, application, num_replicas, batch_size.
func LoadWorkload(path string, applications map[string]*Application) ([]Submission, error) {
	records, err := readRecords(path, "name", "time", "application", "num_replicas", "batch_size")
	if err != nil {
		return nil, err
	}
	jobs, names := make([]Submission, 0, len(records)), map[string]bool{}
	for line, record := range records {
		job, err := readSubmission(record, applications)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, line+2, err)
		}
		if names[job.Name] {
			return nil, fmt.Errorf("%s, line %d: name is %q, which an earlier line has: names must be unique", path, line+2, job.Name)
		}
		names[job.Name] = true
		jobs = append(jobs, job)
	}
	return jobs, nil
}

func readSubmission(record []string, applications map[string]*Application) (Submission, error) {
	job := Submission{Name: record[0], Application: applications[record[2]]}
	if job.Name == "" {
		return job, errors.New("name is empty: must be unique in the workload")
	}
	if job.Application == nil {
		return job, fmt.Errorf("application is %q: must be one of the directory applications", record[2])
	}
	bounds := job.Application.Bounds
	for _, column := range []struct {
		name, text  string
		least, most int
		into        *int
	}{
		{"time", record[1], 0, maxTime, &job.Time},
		{"num_replicas", record[3], 1, bounds.Max, &job.Replicas},
		{"batch_size", record[4], bounds.Initial, bounds.Max, &job.Batch},
	} {
		value, err := strconv.Atoi(column.text)
		if err != nil || value < column.least || value > column.most {
			return job, fmt.Errorf("%s is %q: must be a whole number from %d to %d", column.name, column.text, column.least, column.most)
		}
		*column.into = value
	}
	return job, nil
}

// leastEpochs is the least part of its epochs after which a job stops early.
const leastEpochs = 0.17

// StopEarly returns the workload with each job stopping at a random part of its epochs, 17 to 100 %.
// A job does not know that it will: what it declares stays the total of all epochs.
func StopEarly(workload []Submission, seed uint64) []Submission {
	random := rand.New(rand.NewPCG(seed, 1))
	changed := slices.Clone(workload)
	for i := range changed {
		part := leastEpochs + (1-leastEpochs)*random.Float64()
		changed[i].Epochs = max(1, int(math.Round(part*float64(changed[i].Application.Epochs))))
	}
	return changed
}

// Misdeclare returns the workload with totals that are wrong by a factor: at random too large
// or too small.
func Misdeclare(workload []Submission, factor float64, seed uint64) []Submission {
	random := rand.New(rand.NewPCG(seed, 2))
	changed := slices.Clone(workload)
	for i := range changed {
		changed[i].Declared = factor
		if random.IntN(2) == 0 {
			changed[i].Declared = 1 / factor
		}
	}
	return changed
}

// Join returns workloads one after the other, a workload each period, with arrivals rate times as
// fast. Names get the number of their workload.
func Join(workloads [][]Submission, period int, rate float64) []Submission {
	var joined []Submission
	for i, workload := range workloads {
		for _, job := range workload {
			job.Name = fmt.Sprintf("%s-of-%d", job.Name, i+1)
			job.Time = int(float64(i*period+job.Time) / rate)
			joined = append(joined, job)
		}
	}
	slices.SortStableFunc(joined, func(a, b Submission) int { return a.Time - b.Time })
	return joined
}

// Assign returns the workload with jobs of tenants, in turn.
func Assign(workload []Submission, tenants []shares.Tenant) []Submission {
	assigned := slices.Clone(workload)
	for i := range assigned {
		assigned[i].Tenant = tenants[i%len(tenants)].Name
	}
	return assigned
}
