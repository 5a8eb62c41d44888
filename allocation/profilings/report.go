// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profilings reads what a job reports of itself (status.profilings), in the
// schema of docs/profilings.md or by AdaptDL's field names, and makes a model of its
// goodput from it. Fields that it does not know are ignored.
package profilings

import (
	"encoding/json"
	"fmt"
	"math"

	"opendilab.org/di-orchestrator/allocation/model"
)

// Version is the version of the schema.
const Version = 1

// Bounds of a report. What is beyond them is refused, before anything is sized by it.
const (
	// maxSteps is how many measured steps are used, the first of them.
	maxSteps = 64
	// maxReplicas bounds the replicas and nodes of a measurement.
	maxReplicas = 100_000
	// maxBatch bounds batches, in samples.
	maxBatch = 1 << 40
)

// Report is what a job reports of itself. All parts are optional.
type Report struct {
	Version int `json:"version,omitempty"`
	// Batch are the batches that it can train with.
	Batch *Batch `json:"batch,omitempty"`
	// Steps are measured steps, one of each configuration.
	Steps []Step `json:"steps,omitempty"`
	// Throughput are measured rates, of jobs that have no steps.
	Throughput []Rate `json:"throughput,omitempty"`
	// Gradient is the noise of its gradients now.
	Gradient *Gradient `json:"gradient,omitempty"`
	// Progress is how far it is.
	Progress *Progress `json:"progress,omitempty"`
	adaptDL
}

// Batch are the batches of a job, in samples.
type Batch struct {
	Initial       int `json:"initial"`
	Max           int `json:"max,omitempty"`
	MinPerReplica int `json:"min_per_replica,omitempty"`
	MaxPerReplica int `json:"max_per_replica,omitempty"`
}

// Step is a measured training step.
type Step struct {
	Nodes    int `json:"nodes"`
	Replicas int `json:"replicas"`
	// Samples is the batch of one replica and pass.
	Samples int `json:"samples"`
	// Seconds is the time of a pass that synchronizes, ComputeSeconds of one that does not.
	Seconds        float64 `json:"seconds"`
	ComputeSeconds float64 `json:"compute_seconds,omitempty"`
}

// Rate is a measured rate of useful work, in any unit per second that does not change.
type Rate struct {
	Nodes     int     `json:"nodes"`
	Replicas  int     `json:"replicas"`
	PerSecond float64 `json:"per_second"`
}

// Gradient is the squared norm and the variance of gradients at the initial batch.
type Gradient struct {
	Sqr float64 `json:"sqr"`
	Var float64 `json:"var"`
}

// Progress is how much of the work is done.
type Progress struct {
	Done  float64 `json:"done"`
	Total float64 `json:"total,omitempty"`
	Unit  string  `json:"unit,omitempty"`
}

// adaptDL are the hints that AdaptDL's trainers post (adaptdl/sched_hints.py).
type adaptDL struct {
	InitBatchSize       int     `json:"initBatchSize,omitempty"`
	LocalBszBounds      []int   `json:"localBszBounds,omitempty"`
	MaxBatchSize        int     `json:"maxBatchSize,omitempty"`
	MaxProfiledReplicas int     `json:"maxProfiledReplicas,omitempty"`
	GradParams          *hintsG `json:"gradParams,omitempty"`
	PerfParams          *hintsP `json:"perfParams,omitempty"`
}

type hintsG struct {
	Norm float64 `json:"norm"`
	Var  float64 `json:"var"`
}

type hintsP struct {
	AlphaC float64 `json:"alpha_c"`
	BetaC  float64 `json:"beta_c"`
	AlphaN float64 `json:"alpha_n"`
	BetaN  float64 `json:"beta_n"`
	AlphaR float64 `json:"alpha_r"`
	BetaR  float64 `json:"beta_r"`
	Gamma  float64 `json:"gamma"`
}

// Parse reads a report. An error names the field, its value and what would be right;
// no part of such a report is used.
func Parse(raw []byte) (*Report, error) {
	report := &Report{}
	if err := json.Unmarshal(raw, report); err != nil {
		return nil, fmt.Errorf("profilings: %w", err)
	}
	if report.Version > Version {
		return nil, fmt.Errorf("profilings.version is %d: this version of the operator reads up to %d", report.Version, Version)
	}
	return report, report.check()
}

func (r *Report) check() error {
	for i, step := range r.Steps {
		field := fmt.Sprintf("profilings.steps[%d]", i)
		if err := checkPlace(field, step.Nodes, step.Replicas); err != nil {
			return err
		}
		if step.Samples < 1 || step.Samples > maxBatch {
			return fmt.Errorf("%s.samples is %d: must be from 1 to %d", field, step.Samples, maxBatch)
		}
		if err := checkPositive(field+".seconds", step.Seconds); err != nil {
			return err
		}
		if step.ComputeSeconds < 0 || step.ComputeSeconds > step.Seconds || math.IsNaN(step.ComputeSeconds) {
			return fmt.Errorf("%s.compute_seconds is %g: must be from 0 to seconds, %g", field, step.ComputeSeconds, step.Seconds)
		}
	}
	for i, rate := range r.Throughput {
		field := fmt.Sprintf("profilings.throughput[%d]", i)
		if err := checkPlace(field, rate.Nodes, rate.Replicas); err != nil {
			return err
		}
		if err := checkPositive(field+".per_second", rate.PerSecond); err != nil {
			return err
		}
	}
	if g := r.Gradient; g != nil && (!isNonNegative(g.Sqr) || !isNonNegative(g.Var)) {
		return fmt.Errorf("profilings.gradient is {sqr: %g, var: %g}: both must be 0 or more", g.Sqr, g.Var)
	}
	if p := r.Progress; p != nil && (!isNonNegative(p.Done) || !isNonNegative(p.Total)) {
		return fmt.Errorf("profilings.progress is {done: %g, total: %g}: both must be 0 or more", p.Done, p.Total)
	}
	return nil
}

func checkPlace(field string, nodes, replicas int) error {
	if nodes < 1 || replicas < nodes || replicas > maxReplicas {
		return fmt.Errorf("%s is on %d nodes with %d replicas: nodes must be 1 or more, and replicas from nodes to %d", field, nodes, replicas, maxReplicas)
	}
	return nil
}

func checkPositive(field string, value float64) error {
	if !(value > 0) || math.IsInf(value, 0) {
		return fmt.Errorf("%s is %g: must be more than 0", field, value)
	}
	return nil
}

func isNonNegative(value float64) bool { return value >= 0 && !math.IsInf(value, 0) }

// Observations returns the measured steps that a model is fitted to.
func (r *Report) Observations() []model.Observation {
	var all []model.Observation
	for _, step := range r.Steps[:min(len(r.Steps), maxSteps)] {
		compute := step.ComputeSeconds
		if compute == 0 {
			compute = step.Seconds
		}
		all = append(all, model.Observation{
			Nodes: step.Nodes, Replicas: step.Replicas, Atomic: step.Samples, Step: step.Seconds, Accumulate: compute,
		})
	}
	return all
}
