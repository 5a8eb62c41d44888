// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulator replays workloads of training jobs on a simulated cluster by the
// rules of the Pollux artifact (petuum/adaptdl, branch osdi21-artifact), so that a
// policy is compared with recorded results. Time passes in rounds: every job trains
// for the interval, then the policy places the jobs that are submitted and not
// finished. A changed placement costs a job its restart time.
//
// A policy sees of a job what the job would report: observations and gradient noise.
// What is true of a job (its remaining epochs, its step times) stays in this package;
// only the baselines that the artifact gives true values see them (Oracle).
package simulator
