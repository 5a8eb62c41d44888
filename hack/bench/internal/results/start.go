// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package results

// Start is how long a client takes to start the pods of jobs, in seconds.
type Start struct {
	Client string `json:"client"`
	// Created is the time until all pods exist, Running until all run.
	Created float64 `json:"created"`
	Running float64 `json:"running"`
}
