// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package results

import "fmt"

// Rung is what growth measured with a number of jobs. Sizes are in bytes, percentages are of one processor.
type Rung struct {
	Jobs int `json:"jobs"`
	Pods int `json:"pods"`
	// Finished is the number of further jobs that have ended.
	Finished int `json:"finished,omitempty"`
	// Seconds is how long the jobs that were added took until all ran.
	Seconds float64 `json:"seconds"`
	// PodRequests are the requests of the operator and di-server for an added pod.
	PodRequests float64 `json:"podRequests"`
	// Requests are those for an added pod by user and request, such as "create pods".
	Requests     map[string]map[string]float64 `json:"requests,omitempty"`
	Operator     Need                          `json:"operator"`
	Webhooks     Need                          `json:"webhooks"`
	Server       Need                          `json:"server"`
	APIServer    Need                          `json:"apiServer"`
	Etcd         Need                          `json:"etcd"`
	Heap         int64                         `json:"operatorHeap"`
	Stored       int64                         `json:"stored"`
	RestRequests float64                       `json:"restRequestsPerMinute"`
	FirstPod     Times                         `json:"firstPod"`
	Resize       Times                         `json:"resize"`
	Get          Times                         `json:"get"`
	Post         Times                         `json:"post"`
	FailedCalls  int                           `json:"failedCalls"`
	Failure      string                        `json:"failure,omitempty"`
}

// Need is what a program needs: processor time for an added pod, its share of a processor while no job
// changes, and memory.
type Need struct {
	PodMillis   float64 `json:"podMillis"`
	RestPercent float64 `json:"restPercent"`
	Resident    int64   `json:"resident"`
}

// Times are percentiles in seconds.
type Times struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// String returns two cells of a table.
func (t Times) String() string { return fmt.Sprintf("%.1f ms\t%.1f ms", t.P50*1000, t.P99*1000) }

// Start is how long a client takes to start the pods of jobs, in seconds.
type Start struct {
	Client string `json:"client"`
	// Created is the time until all pods exist, Running until all run.
	Created float64 `json:"created"`
	Running float64 `json:"running"`
}
