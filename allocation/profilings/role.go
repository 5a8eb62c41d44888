// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package profilings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// The bounds of a role report.
const (
	// maxCount bounds counters and queues, in samples: integers up to it are exact as JSON numbers.
	maxCount = 1 << 53
	// maxTime bounds times and durations in seconds, 30,000 years.
	maxTime = 1e12
	// maxVersions bounds staleness, in versions of the policy.
	maxVersions = 1e6
	// maxReplay bounds how often a sample is used.
	maxReplay = 1e6
	// maxRank bounds ranks.
	maxRank = maxReplicas - 1
)

// roleName is the format of a role, that of the name of a task.
var roleName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Role is the report of a worker about itself. Samples and the three durations are counters since its
// start, so that a lost report loses nothing. Other numbers are current values.
type Role struct {
	Version int `json:"version"`
	// Role is the name or the type of the worker's task.
	Role string `json:"role"`
	// Rank tells workers apart that one program reports for.
	Rank int `json:"rank,omitempty"`
	// Time is the time of the report by the worker's clock, in seconds; 0 for the time of its arrival.
	Time float64 `json:"time,omitempty"`

	// Samples is how many samples were produced or consumed.
	Samples float64 `json:"samples,omitempty"`
	// BusySeconds is how long the worker worked.
	BusySeconds float64 `json:"busy_seconds,omitempty"`
	// BlockedSeconds is how long a producer waited because the queue was full, or for a policy.
	BlockedSeconds float64 `json:"blocked_seconds,omitempty"`
	// StarvedSeconds is how long a consumer waited for samples.
	StarvedSeconds float64 `json:"starved_seconds,omitempty"`

	// PolicyVersion is the version of the policy that the worker has.
	PolicyVersion float64 `json:"policy_version,omitempty"`
	// InFlight is the number of samples that a producer has begun.
	InFlight float64 `json:"in_flight,omitempty"`
	// Queue is the number of samples that wait for the consumer, QueueCapacity their maximum.
	Queue         float64 `json:"queue,omitempty"`
	QueueCapacity float64 `json:"queue_capacity,omitempty"`
	// BatchSamples is the number of samples of a step. A number as batch is the same.
	BatchSamples float64 `json:"batch_samples,omitempty"`
	// MaxStaleness is how many versions old a sample may be when it is consumed.
	MaxStaleness  float64 `json:"max_staleness,omitempty"`
	StalenessMean float64 `json:"staleness_mean,omitempty"`
	StalenessMax  float64 `json:"staleness_max,omitempty"`
	// ReplayRatio is how many times each sample is consumed; 0 for once.
	ReplayRatio float64 `json:"replay_ratio,omitempty"`

	// Batch is a number of samples, or the bounds of a job's report, which do not count here.
	Batch json.RawMessage `json:"batch,omitempty"`
}

// ParseRole reads the report of a worker about itself, which has a version and a role. It returns false
// for any other report. The error names the field, the value and what would be right.
func ParseRole(raw []byte) (*Role, bool, error) {
	var marks struct {
		Version json.RawMessage `json:"version"`
		Role    json.RawMessage `json:"role"`
	}
	if isObject := json.Unmarshal(raw, &marks) == nil; !isObject || isAbsent(marks.Version) || isAbsent(marks.Role) {
		return nil, false, nil
	}
	report := &Role{}
	if err := json.Unmarshal(raw, report); err != nil {
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) {
			err = fmt.Errorf("profilings%s is a JSON %s: must be %s", suffix(mismatch.Field), mismatch.Value, describe(mismatch.Type))
		}
		return nil, true, err
	}
	if err := report.readBatch(); err != nil {
		return nil, true, err
	}
	return report, true, report.check()
}

func isAbsent(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// readBatch reads a number as batch.
func (r *Role) readBatch() error {
	if isAbsent(r.Batch) || r.Batch[0] == '{' {
		return nil
	}
	if r.BatchSamples != 0 {
		return fmt.Errorf("profilings.batch is %s beside profilings.batch_samples: must be one of both", r.Batch)
	}
	if err := json.Unmarshal(r.Batch, &r.BatchSamples); err != nil {
		return errors.New("profilings.batch is no number: must be the samples of a step")
	}
	return nil
}

func (r *Role) check() error {
	if !roleName.MatchString(r.Role) {
		return fmt.Errorf("profilings.role is %.80q: must be the name or the type of a task", r.Role)
	}
	if err := first(
		func() error { return checkInteger("profilings.version", r.Version, 1, Version) },
		func() error { return checkInteger("profilings.rank", r.Rank, 0, maxRank) },
	); err != nil {
		return err
	}
	for _, number := range []struct {
		field       string
		value, most float64
	}{
		{"time", r.Time, maxTime},
		{"samples", r.Samples, maxCount},
		{"busy_seconds", r.BusySeconds, maxTime},
		{"blocked_seconds", r.BlockedSeconds, maxTime},
		{"starved_seconds", r.StarvedSeconds, maxTime},
		{"policy_version", r.PolicyVersion, maxCount},
		{"in_flight", r.InFlight, maxCount},
		{"queue", r.Queue, maxCount},
		{"queue_capacity", r.QueueCapacity, maxCount},
		{"batch_samples", r.BatchSamples, maxBatch},
		{"max_staleness", r.MaxStaleness, maxVersions},
		{"staleness_mean", r.StalenessMean, maxVersions},
		{"staleness_max", r.StalenessMax, maxVersions},
		{"replay_ratio", r.ReplayRatio, maxReplay},
	} {
		if err := checkNumber("profilings."+number.field, number.value, 0, number.most); err != nil {
			return err
		}
	}
	return nil
}
