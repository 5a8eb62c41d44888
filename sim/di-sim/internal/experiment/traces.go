// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package experiment runs policies on the workloads of a directory of traces, and
// compares them with recorded results.
package experiment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/sim/simulator"
)

// Traces is a directory of applications/, grid-aws/, workloads-LOAD/ and, optional,
// recorded-jct.json. docs/simulator.md describes the files.
type Traces struct {
	directory    string
	applications map[string]*simulator.Application
	// recorded has job completion times by policy-load, workload and job.
	recorded map[string]map[string]map[string]int
}

// Workload is some jobs and the time at which each is submitted.
type Workload struct {
	Load, Name string
	Jobs       []simulator.Submission
}

// Open reads the applications and the recorded results.
func Open(directory string) (*Traces, error) {
	applications, err := simulator.LoadApplications(directory)
	if err != nil {
		return nil, err
	}
	t := &Traces{directory: directory, applications: applications}
	path := filepath.Join(directory, "recorded-jct.json")
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &t.recorded)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return t, nil
}

// Loads returns the loads that the traces have workloads for.
func (t *Traces) Loads() []string {
	var loads []string
	paths, _ := filepath.Glob(filepath.Join(t.directory, "workloads-*"))
	for _, path := range paths {
		loads = append(loads, strings.TrimPrefix(filepath.Base(path), "workloads-"))
	}
	return loads
}

// Workloads returns the first workloads of a load in the order of their numbers; all where most is 0.
func (t *Traces) Workloads(load string, most int) ([]Workload, error) {
	if !slices.Contains(t.Loads(), load) {
		return nil, fmt.Errorf("there is no load %q in %s: must be one of %s", load, t.directory, strings.Join(t.Loads(), ", "))
	}
	paths, err := filepath.Glob(filepath.Join(t.directory, "workloads-"+load, "workload-*.csv"))
	if err != nil {
		return nil, fmt.Errorf("listing workloads: %w", err)
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(cmp.Compare(numberOf(a), numberOf(b)), cmp.Compare(a, b)) })
	if most > 0 {
		paths = paths[:min(most, len(paths))]
	}
	var workloads []Workload
	for _, path := range paths {
		jobs, err := simulator.LoadWorkload(path, t.applications)
		if err != nil {
			return nil, err
		}
		if len(jobs) == 0 {
			return nil, fmt.Errorf("%s has no jobs: must have one row for each", path)
		}
		workloads = append(workloads, Workload{Load: load, Name: workloadName(path), Jobs: jobs})
	}
	if len(workloads) == 0 {
		return nil, fmt.Errorf("%s has no workload-*.csv", filepath.Join(t.directory, "workloads-"+load))
	}
	return workloads, nil
}

func workloadName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".csv") }

// numberOf returns the number in the name of a workload.
func numberOf(path string) int {
	number, err := strconv.Atoi(strings.TrimPrefix(workloadName(path), "workload-"))
	if err != nil {
		return 0
	}
	return number
}

// Recorded returns the recorded job completion times of a workload; nil if there are none.
func (t *Traces) Recorded(policy string, workload *Workload) map[string]int {
	return t.recorded[policy+"-"+workload.Load][workload.Name]
}

// Applications returns the measured applications, by name.
func (t *Traces) Applications() map[string]*simulator.Application { return t.applications }
