// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulator replays workloads of training jobs on a simulated cluster by the
// rules of the Pollux artifact (petuum/adaptdl, branch osdi21-artifact), so that a
// policy can be compared with recorded results. Time passes in rounds: every job trains
// for the interval, then the policy places the jobs that are submitted and unfinished.
// A changed placement costs a job its restart time.
//
// Allocator runs the policies of package allocation, the same code that the operator
// runs. They read what a job reports: measured steps, gradient noise, and its progress
// if the row of the table allows it. The truth about a job (its remaining epochs, its
// step times) stays in this package. Only the baselines whose originals know it read
// it, through Oracle.
package simulator
