// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package local

import "time"

// Settings are the numbers of the rules. Shares are of 1.
type Settings struct {
	// PlanInterval is the minimum time between two plans of a job.
	PlanInterval time.Duration `json:"planInterval"`
}

// Defaults returns the default settings.
func Defaults() Settings { return Settings{PlanInterval: 5 * time.Minute} }
