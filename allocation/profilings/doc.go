// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profilings reads the report of a job, status.profilings. It reads the schema of
// docs/profilings.md and the field names of AdaptDL, and ignores other fields. A report yields
// what a model of the job's goodput needs.
//
// The package is pure: it computes, and has no clock, no log and no client.
package profilings
