// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle decides what is to be done for a job, given what was
// observed of it. It is pure: it has no client, no clock and no log.
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
// A fact that cannot be told from the cluster afterwards (a restart, a rank
// that has succeeded, a lost pod, the end) is recorded in a status first, and
// acted on in the pass that sees it recorded.
package lifecycle
