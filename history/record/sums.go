// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "time"

// PathSums is the path of the sums of jobs by HTTP.
const PathSums = "/v1alpha1/history/sums"

const (
	// MaxSums bounds the sums of one answer.
	MaxSums = 500
	// MaxDaily bounds the sums of one answer that have their days.
	MaxDaily = 20
)

// The causes of jobs that did not fail by a reason of their own.
const (
	CauseFailed  = "Failed"
	CauseDeleted = "Deleted"
	CauseUnseen  = "Unseen"
)

// By is what jobs are summed by.
type By string

// What jobs are summed by.
const (
	ByNamespace By = "namespace"
	ByGroup     By = "group"
	ByQueue     By = "queue"
	ByUser      By = "user"
	ByCause     By = "cause"
	ByDay       By = "day"
)

// Bys returns all that jobs are summed up by.
func Bys() []By { return []By{ByNamespace, ByGroup, ByQueue, ByUser, ByCause, ByDay} }

// Request is what one replica of a task requests, by its template.
type Request struct {
	Task string `json:"task"`
	// CPU is in millicores, and Memory in bytes.
	CPU    int64 `json:"cpu,omitempty"`
	Memory int64 `json:"memory,omitempty"`
	GPUs   int64 `json:"gpus,omitempty"`
}

// Sum is what jobs took together. Hours are those of their replicas.
type Sum struct {
	// Key is the namespace, group, queue, user, cause or day.
	Key  string `json:"key"`
	Jobs int64  `json:"jobs"`
	// Unsuccessful counts the jobs that failed, were deleted before they finished, or ended unseen.
	Unsuccessful int64 `json:"unsuccessful,omitempty"`
	// Waited is how long the jobs waited for their first replica, in hours.
	Waited float64 `json:"waited,omitempty"`
	// GPU is in hours of requested GPUs.
	GPU float64 `json:"gpu,omitempty"`
	// Daily is GPU by the day on which the jobs ended, from Since of the list; only if it was asked for.
	Daily []float64 `json:"daily,omitempty"`
	// The requests and peaks of replicas whose usage was read: CPU in hours of cores, memory in hours of GiB.
	CPURequested    float64 `json:"cpuRequested,omitempty"`
	CPUUsed         float64 `json:"cpuUsed,omitempty"`
	MemoryRequested float64 `json:"memoryRequested,omitempty"`
	MemoryUsed      float64 `json:"memoryUsed,omitempty"`
}

// Shares returns which parts of the requested CPU and memory were used at most; nil for what was not measured.
func (s *Sum) Shares() (cpu, memory *float64) {
	return share(s.CPUUsed, s.CPURequested), share(s.MemoryUsed, s.MemoryRequested)
}

func share(used, requested float64) *float64 {
	if requested <= 0 {
		return nil
	}
	part := used / requested
	return &part
}

// SumList has the sums of the jobs that ended in a time, those with the most GPU hours first.
type SumList struct {
	// Since is the start of the first day that was summed up.
	Since time.Time `json:"since"`
	Sums  []Sum     `json:"sums"`
	// Truncated is true if there is more than was summed up: older days, and a part of the first one, or more keys.
	Truncated bool `json:"truncated,omitempty"`
}

// Cause returns why a job did not succeed; empty if it did.
func (j *Job) Cause() string {
	switch {
	case j.Unseen:
		return CauseUnseen
	case j.Deleted:
		return CauseDeleted
	case j.Phase != CauseFailed:
		return ""
	case j.Reason == "":
		return CauseFailed
	}
	return j.Reason
}

const gib = 1 << 30

// Sum returns what a job that has ended took. Its Cause reports whether it succeeded.
func (j *Job) Sum() Sum {
	sum := Sum{Jobs: 1}
	started := j.Started
	if started.IsZero() {
		started = j.Ended
	}
	sum.Waited = max(started.Sub(j.Created), 0).Hours()
	requests := make(map[string]Request, len(j.Requests))
	for _, request := range j.Requests {
		requests[request.Task] = request
	}
	peaks := make(map[string]Peak, len(j.Peaks))
	for _, peak := range j.Peaks {
		peaks[peak.Task] = peak
	}
	for i := range j.Replicas {
		replica := &j.Replicas[i]
		ended := replica.Ended
		if ended.IsZero() {
			ended = j.Ended
		}
		if replica.Started.IsZero() || !ended.After(replica.Started) {
			continue
		}
		hours, request := ended.Sub(replica.Started).Hours(), requests[replica.Task]
		sum.GPU += hours * float64(request.GPUs)
		if peak, isMeasured := peaks[replica.Task]; isMeasured {
			sum.CPURequested += hours * float64(request.CPU) / 1000
			sum.CPUUsed += hours * float64(peak.CPU) / 1000
			sum.MemoryRequested += hours * float64(request.Memory) / gib
			sum.MemoryUsed += hours * float64(peak.Memory) / gib
		}
	}
	return sum
}
