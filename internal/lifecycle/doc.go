// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle decides what to do for a job, given what was observed, and
// concludes what to commit, given what acting on the decision has shown. It is
// pure: it has no client, no clock and no log.
//
// Decide computes an input from the observation, which no rule changes. The rules
// of the job's lifecycle then add to a plan in their order, until one settles it:
// those of package workerled or of package coordinatorled. Both build on package
// state, and none imports this one.
// Conclude turns the decision and its effects into a status, events and the time of
// the next reconcile.
//
// A worker-led job goes
//
//	Pending -> Starting -> Running -> Succeeded
//	              ^           |
//	              +- Restarting -> Failed
//
// where Pending has no pod, Starting has some, Running had all of them ready,
// and Restarting deletes the pods of the attempt that failed. A coordinator-led
// job is Created when its coordinator exists, Running when that runs, and
// Succeeded or Failed as that ends. docs/lifecycle.md has every transition, and a
// test holds it against this package.
//
// A fact that the cluster does not show later (a restart, a completed rank, a lost
// pod, the end) is recorded in a status first, and acted on in the reconcile that
// observes the record.
package lifecycle
