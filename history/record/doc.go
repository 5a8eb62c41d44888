// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record has the types of what the history remembers of a job, their bounds, and how curves
// are thinned by age. It is pure.
package record
