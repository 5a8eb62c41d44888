// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strconv"
)

// Submission is a job of a workload.
type Submission struct {
	Name string
	// Time is when it is submitted, in seconds.
	Time        int
	Application *Application
	// Replicas and Batch are what a careful user asks for.
	Replicas, Batch int
}

// LoadWorkload reads a workload: name, time, application, num_replicas, batch_size.
func LoadWorkload(path string, applications map[string]*Application) ([]Submission, error) {
	records, err := readRecords(path, "name", "time", "application", "num_replicas", "batch_size")
	if err != nil {
		return nil, err
	}
	jobs := make([]Submission, 0, len(records))
	for line, record := range records {
		application, known := applications[record[2]]
		if !known {
			return nil, fmt.Errorf("%s, line %d: application %q was not measured", path, line+2, record[2])
		}
		job := Submission{Name: record[0], Application: application}
		for i, into := range []*int{&job.Time, &job.Replicas, &job.Batch} {
			text := record[[]int{1, 3, 4}[i]]
			if *into, err = strconv.Atoi(text); err != nil {
				return nil, fmt.Errorf("%s, line %d: %q is no whole number", path, line+2, text)
			}
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}
