// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package profilings

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Version is the version of the schema.
const Version = 1

// Report is the report of a job. All parts are optional. The methods accept nil, the report of a
// job that reports nothing.
type Report struct {
	// Version is the version of the schema; 0 if the report names none.
	Version int `json:"version,omitempty"`
	// Batch bounds the batches that the job trains with.
	Batch *Batch `json:"batch,omitempty"`
	// Steps are measured steps, the newest last.
	Steps []Step `json:"steps,omitempty"`
	// Throughput are measured rates, the newest last. They count in reports without steps.
	Throughput []Rate `json:"throughput,omitempty"`
	// Gradient is the current noise of the gradients. It counts in reports with a batch.
	Gradient *Gradient `json:"gradient,omitempty"`
	// Progress is the progress of the job.
	Progress *Progress `json:"progress,omitempty"`
	adaptDL
}

// Batch bounds the batches of a job, in samples.
type Batch struct {
	// Initial is the batch that the job was tuned for. Goodput counts its samples.
	Initial int `json:"initial"`
	// Max is the largest batch of a step. The default is Initial: the batch never changes.
	Max int `json:"max,omitempty"`
	// MinPerReplica bounds the samples of one replica and pass. The default is 1.
	MinPerReplica int `json:"min_per_replica,omitempty"`
	// MaxPerReplica bounds the samples of one replica and pass. The default is Max.
	MaxPerReplica int `json:"max_per_replica,omitempty"`
	// NoAccumulation says that the job makes one pass in each step.
	NoAccumulation bool `json:"no_accumulation,omitempty"`
}

// Step is a measured training step.
type Step struct {
	Nodes    int `json:"nodes"`
	Replicas int `json:"replicas"`
	// Samples is the batch of one replica and pass.
	Samples int `json:"samples"`
	// Seconds is the duration of a pass that synchronizes gradients.
	Seconds float64 `json:"seconds"`
	// ComputeSeconds is the duration of a pass that does not; 0 if it is not measured.
	ComputeSeconds float64 `json:"compute_seconds,omitempty"`
	// Device is the type of the devices, as a label of the nodes names it; empty if the job does not know it.
	Device string `json:"device,omitempty"`
}

// Rate is a measured rate of training.
type Rate struct {
	Nodes    int `json:"nodes"`
	Replicas int `json:"replicas"`
	// Batch is the batch of a step, in samples; 0 if the rate counts another unit.
	Batch int `json:"batch,omitempty"`
	// Accumulation is the number of passes of a step before the one that synchronizes.
	Accumulation int `json:"accumulation,omitempty"`
	// PerSecond is the rate: samples if the batch is given, else any one unit of work.
	PerSecond float64 `json:"per_second"`
}

// Gradient is the squared norm of the mean gradient and the variance of gradients, both at the
// initial batch.
type Gradient struct {
	Sqr float64 `json:"sqr"`
	Var float64 `json:"var"`
}

// Progress is the part of its work that a job has done.
type Progress struct {
	Done float64 `json:"done"`
	// Total is the whole work; 0 if it is not known.
	Total float64 `json:"total,omitempty"`
	// Unit names what is counted. It is only shown.
	Unit string `json:"unit,omitempty"`
}

// Parse reads a report. If it returns an error, no part of the report counts. The error names the
// field, the value and what would be right.
//
// Programs reported before there was a schema. A report is one of these if it names no version and
// has a part of another JSON type than the schema: nothing of it counts, and it is no error.
func Parse(raw []byte) (*Report, error) {
	if len(raw) > maxBytes {
		return nil, fmt.Errorf("profilings has %d bytes: must have at most %d", len(raw), maxBytes)
	}
	report := &Report{}
	err := json.Unmarshal(raw, report)
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch) && report.Version == 0:
		return &Report{}, nil
	case errors.As(err, &mismatch):
		return nil, fmt.Errorf("profilings%s is a JSON %s: must be %s", suffix(mismatch.Field), mismatch.Value, describe(mismatch.Type))
	case err != nil:
		return nil, fmt.Errorf("profilings is not JSON: %w", err)
	}
	if err := report.check(); err != nil {
		return nil, err
	}
	return report, nil
}

// suffix returns the path of a field below the report. AdaptDL's fields are embedded in it.
func suffix(field string) string {
	if field = strings.TrimPrefix(field, "adaptDL."); field != "" {
		return "." + field
	}
	return ""
}

// describe returns the JSON value that a Go type holds.
func describe(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Int:
		return "an integer"
	case reflect.Float64:
		return "a finite number"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}
